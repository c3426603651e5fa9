"""The Serve application on a cluster, from its start to its removal."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ray
from ray import serve
from ray.serve import Application

from vecmill.errors import InvalidConfig, SetupError
from vecmill.values.environment import environment_variables
from vecmill_ray.serving.application import bind_plan
from vecmill_ray.serving.model_plan import ServingPlan, read_plan
from vecmill_ray.serving.ray_settings import RaySettings
from vecmill_ray.serving.serve_environment import controller_options

logger = logging.getLogger(__name__)

APPLICATION = "vecmill"


@contextmanager
def run_application(path: Path, settings: RaySettings, address: str | None) -> Iterator[str]:
    """Serve the models of a configuration file until the block ends, and return the URL.

    `address` is that of a cluster, by default RAY_ADDRESS or a new cluster on this machine. Raises
    `SetupError` if the file is invalid.
    """
    plan = read_plan(path, cores=settings.replica_cores)
    server = plan.settings
    is_own = not ray.is_initialized() and _connect(address)
    _check_cores(plan, settings, is_own=is_own)
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
        _run(bind_plan(plan, settings))
        yield f"http://{server.host}:{server.port}{server.url_prefix}"
    finally:
        serve.delete(APPLICATION)
        if not serve.status().applications:
            serve.shutdown()  # ends the proxies too, which are processes of their own
        ray.shutdown()


def _connect(address: str | None) -> bool:
    """Connect to a cluster, or else start one on this machine. Return True if it was started."""
    address = address or environment_variables().get("RAY_ADDRESS")
    if address:
        ray.init(address=address, log_to_driver=True)
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
    count = len(plan.models)
    routers = settings.routers if count > 1 else 0
    needed = count * settings.replicas * settings.replica_cores + routers
    available = int(ray.cluster_resources().get("CPU", 0))
    if needed <= available:
        return
    if is_own:
        ray.shutdown()
        raise InvalidConfig(
            f"The replicas and routers need {needed} cores, and this machine has {available}. Lower "
            f"--replicas or --replica-cores, or start Ray with more cores than there are: ray start --head "
            f"--num-cpus={needed}."
        )
    logger.warning(
        "the replicas and routers need %d cores, and the cluster has %d; the start waits for the others",
        *(needed, available),
    )


def _run(application: Application) -> None:
    try:
        serve.run(application, name=APPLICATION, route_prefix="/")
    except RuntimeError as error:
        raise SetupError(
            f"Serve could not start the models. {error} The lines above have the reason."
        ) from error
