"""The settings of the Serve application, and the environment variables and times that Serve is given.

Serve leaves requests to the server. It reads most settings about that from environment variables only: the
controller and the proxies when Serve starts on a cluster, each replica when it starts.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vecmill.config import setting
from vecmill.errors import InvalidConfig
from vecmill_server.base.options import list_settings
from vecmill_server.base.settings import ServerSettings, require


@dataclass(frozen=True, slots=True)
class RaySettings:
    """The settings of the Serve application. Raises `InvalidConfig` if a value is invalid."""

    replicas: int = setting(1, "The number of replicas of each model, or the minimum with --max-replicas.")
    max_replicas: int | None = setting(
        None, "The maximum number of replicas of each model; by default, the number does not change."
    )
    replica_cores: int = setting(1, "The cores of each replica.")
    replica_gpus: float = setting(0.0, "The GPUs of each replica.")
    queue_s: float = setting(
        0.5,
        "The seconds of queued work for each replica above which Serve adds a replica. Serve also adds a "
        "replica if the replicas compute for more than 80% of the time.",
    )
    upscale_delay_s: float = setting(10.0, "The time before Serve adds a replica, in seconds.")
    downscale_delay_s: float = setting(300.0, "The time before Serve removes a replica, in seconds.")
    routers: int | None = setting(
        None, "The number of routers, which several models need; by default one on each node."
    )
    nodes: int | None = setting(
        None,
        "The number of nodes that the cluster will have, if they start later; by default those that it has.",
    )

    def __post_init__(self) -> None:
        for name in ("replicas", "replica_cores", "routers", "nodes"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"{name} must be at least 1")
        most = self.max_replicas
        require(most is None or most >= self.replicas, "max_replicas must not be less than replicas")
        require(self.replica_gpus >= 0, "replica_gpus must not be negative")
        require(self.queue_s > 0, "queue_s must be more than 0")
        for name in ("upscale_delay_s", "downscale_delay_s"):
            require(getattr(self, name) >= 0, f"{name} must not be negative")

    def count_nodes(self, alive: int) -> int:
        """Return the number of nodes that routers are spread over, for a cluster with so many now."""
        return alive if self.nodes is None else max(self.nodes, alive)

    def count_routers(self, alive: int) -> int:
        """Return the number of routers for a cluster that has so many nodes now."""
        return self.count_nodes(alive) if self.routers is None else self.routers

    @property
    def scales(self) -> bool:
        """True if the number of replicas changes with the load."""
        return self.max_replicas is not None and self.max_replicas > self.replicas

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "RaySettings":
        """Return the settings in `values`, whose strings are converted. Raises `InvalidConfig`."""
        known = {each.field.name: each.type for each in list_settings(cls)}
        for name in values:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = (
                    f"Did you mean {near[0]}?" if near else f"The arguments are config, {', '.join(known)}."
                )
                raise InvalidConfig(f"The argument {name} is not known. {hint}")
        try:
            return cls(**{name: known[name](value) for name, value in values.items()})
        except (TypeError, ValueError) as error:
            raise InvalidConfig(f"An argument has the wrong type: {error}.") from error


# After the last response, to close the model.
CLOSE_S = 10.0


def drain_wait_s(settings: ServerSettings) -> float:
    """Return the time for which a leaving replica still takes requests, in seconds: the lame-duck time."""
    return max(0.1, settings.longest_lame_duck_s)


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


def retry_on(body_timeout_s: float) -> str:
    """Return when HAProxy sends a request again to another server, as lines of its file.

    It does so if there is no connection, or none any more before an answer: a replica that leaves closes idle
    connections, and a node may be lost. All requests compute, and change nothing. HAProxy has to have the
    whole request for this, so it waits for the body, up to the size of a buffer and for so long. Ray has no
    variables for the other lines, and writes this one as it is.
    """
    lines = (
        "conn-failure empty-response",
        "option http-buffer-request",
        f"timeout http-request {round(body_timeout_s * 1000)}ms",
    )
    return "\n    ".join(lines)


def controller_environment(settings: ServerSettings) -> dict[str, str]:
    """Return the environment variables of Serve's controller and proxies."""
    return {
        **_direct_ingress(settings),
        # The other proxy has its own queue, and an actor call for each request.
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_HAPROXY_RETRY_ON": retry_on(settings.body_timeout_s),
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


ALL_INTERFACES = "0.0.0.0"
_ALL = (ALL_INTERFACES, "::")


def check_host(host: str, nodes: int) -> None:
    """Check that the HAProxy of each node reaches the replicas of all nodes.

    Each replica listens on the address `host` of its own node. Raises `InvalidConfig` if the cluster has
    several nodes and `host` is not the address of all interfaces.
    """
    if nodes > 1 and host not in _ALL:
        raise InvalidConfig(
            f"The Ray cluster has {nodes} nodes, but on {host} a node does not reach the replicas of other "
            f'nodes. Write host = "{ALL_INTERFACES}" under [server] in the configuration file.'
        )


def format_url(host: str, port: int, prefix: str) -> str:
    """Return the URL of a server that listens on this address."""
    return f"http://[{host}]:{port}{prefix}" if ":" in host else f"http://{host}:{port}{prefix}"
