"""The Serve application on a cluster, from its start to its removal."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve import Application
from ray.serve.context import _get_global_client
from ray.serve.exceptions import RayServeException

from vecmill.errors import InvalidConfig, SetupError
from vecmill.values.environment import environment_variables
from vecmill_ray.serving.application import bind_plan, count_nodes
from vecmill_ray.serving.model_plan import ServingPlan, read_plan
from vecmill_ray.serving.ray_settings import RaySettings
from vecmill_ray.serving.serve_address import check_host, format_url
from vecmill_ray.serving.serve_environment import controller_options

logger = logging.getLogger(__name__)

APPLICATION = "vecmill"

# The time between two checks that Serve still has the application.
CHECK_S = 10.0


@contextmanager
def run_application(path: Path, settings: RaySettings, address: str | None) -> Iterator[str]:
    """Serve the models of a configuration file until the block ends, and return the URL.

    `address` is that of a cluster, by default RAY_ADDRESS or a new cluster on this machine. Raises
    `SetupError` if the file is invalid, or if the cluster cannot be reached or already serves vecmill.
    """
    plan = read_plan(path, cores=settings.replica_cores)
    server = plan.settings
    is_own = not ray.is_initialized() and _connect(address)
    _check_cores(plan, settings, is_own=is_own)
    _refuse_second_application()
    running = _running_address()
    if running is None:
        check_host(server.host, count_nodes())
    host, port = running or (server.host, server.port)
    serve.start(
        proxy_location="EveryNode",
        http_options={
            "host": server.host,
            "port": server.port,
            "request_timeout_s": None,
            "keep_alive_timeout_s": int(server.keep_alive_s),
        },
        controller_options=controller_options(server),
    )
    try:
        _run(bind_plan(plan, settings, count_nodes()))
        yield format_url(host, port, server.url_prefix)
    finally:
        if _is_deployed():
            serve.delete(APPLICATION)
        if not serve.status().applications:
            serve.shutdown()  # ends the proxies too, which are processes of their own
        ray.shutdown()


def wait_until_stopped(stopping: threading.Event) -> None:
    """Return when `stopping` is set. Raises `SetupError` if Serve has no longer the application."""
    while not stopping.wait(CHECK_S):
        try:
            is_deployed = _is_deployed()
        except (RayError, RayServeException, TimeoutError):  # the controller may be restarting
            continue
        if not is_deployed:
            raise SetupError("Another program has removed the models from the Ray cluster.")


def _is_deployed() -> bool:
    return APPLICATION in serve.status().applications


def _refuse_second_application() -> None:
    if _is_deployed():
        raise InvalidConfig(
            "The Ray cluster already serves vecmill. Stop the other command, or remove its models with "
            "`serve shutdown`. One configuration file can name several models."
        )


def _running_address() -> tuple[str, int] | None:
    """Return the host and the port of a Serve that runs already, which ignores those of the file."""
    client = _get_global_client(raise_if_no_controller_running=False)
    return None if client is None else (client.http_config.host, client.http_config.port)


def _connect(address: str | None) -> bool:
    """Connect to a cluster, or else start one on this machine. Return True if it was started.

    Raises `SetupError` if the cluster at `address` cannot be reached.
    """
    address = address or environment_variables().get("RAY_ADDRESS")
    if address:
        try:
            ray.init(address=address, log_to_driver=True)
        except (ConnectionError, RuntimeError, ValueError, RayError) as error:
            reason = str(error).partition("\n")[0].rstrip(".")
            raise SetupError(f"The Ray cluster at {address} cannot be reached: {reason}.") from error
        return False
    try:
        ray.init(address="auto", log_to_driver=True)
    except ConnectionError:  # no Ray runs on this machine
        ray.init(address="local", log_to_driver=True, include_dashboard=False)
        return True
    return False


def _check_cores(plan: ServingPlan, settings: RaySettings, *, is_own: bool) -> None:
    """Check that the cluster has the cores that the models need.

    Raises `InvalidConfig` if a cluster on this machine alone has too few. Other clusters may grow: the log
    has a warning.
    """
    needed = len(plan.models) * settings.replicas * settings.replica_cores
    available = int(ray.cluster_resources().get("CPU", 0))
    if needed <= available:
        return
    if is_own:
        ray.shutdown()
        raise InvalidConfig(
            f"The replicas need {needed} cores, and this machine has {available}. Lower "
            f"--replicas or --replica-cores, or start Ray with more cores than there are: ray start --head "
            f"--num-cpus={needed}."
        )
    logger.warning(
        "the replicas need %d cores, and the cluster has %d; the start waits for the others",
        *(needed, available),
    )


def _run(application: Application) -> None:
    try:
        serve.run(application, name=APPLICATION, route_prefix="/")
    except (RuntimeError, RayServeException) as error:
        raise SetupError(
            f"Serve could not start the models. {error} The lines above have the reason."
        ) from error
