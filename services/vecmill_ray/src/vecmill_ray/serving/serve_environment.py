"""The environment variables and the times that make Serve leave requests to the server.

Serve reads most of these settings from environment variables only: the controller and the proxies when Serve
starts on a cluster, each replica when it starts.
"""

from collections.abc import Mapping

from vecmill_server.base.settings import DEFAULT_LAME_DUCK_S, ServerSettings

# After the last response, to close the model.
CLOSE_S = 10.0


def drain_wait_s(settings: ServerSettings) -> float:
    """Return the time for which a leaving replica still takes requests, in seconds: the lame-duck time."""
    return max(0.1, DEFAULT_LAME_DUCK_S if settings.lame_duck_s is None else settings.lame_duck_s)


def stop_timeout_s(settings: ServerSettings) -> float:
    """Return the time from the decision to stop a replica until Serve kills it, in seconds."""
    return drain_wait_s(settings) + settings.drain_s + CLOSE_S


def replica_environment(settings: ServerSettings) -> dict[str, str]:
    """Return the environment variables of replicas."""
    return {
        **_direct_ingress(settings),
        # The server computes in threads of its own, so its event loop is never blocked.
        "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
        "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
    }


def controller_environment(settings: ServerSettings) -> dict[str, str]:
    """Return the environment variables of Serve's controller and proxies."""
    return {
        **_direct_ingress(settings),
        # The other proxy has its own queue, and an actor call for each request.
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        # A leaving replica closes idle connections. Requests that met the closing are sent again: they
        # compute, and change nothing.
        "RAY_SERVE_HAPROXY_RETRY_ON": "conn-failure empty-response",
        # A node that loads models may be too busy to start a proxy in Serve's 5 seconds. Serve would give up.
        "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
        "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "30",
    }


def controller_options(settings: ServerSettings) -> Mapping[str, object]:
    """Return the argument `controller_options` of `serve.start`."""
    return {"runtime_env": {"env_vars": controller_environment(settings)}}


def _direct_ingress(settings: ServerSettings) -> dict[str, str]:
    return {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": f"{drain_wait_s(settings):g}",
    }
