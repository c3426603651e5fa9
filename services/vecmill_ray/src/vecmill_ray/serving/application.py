"""The Serve application: the deployments of a plan, their options, and their life on a cluster."""

import asyncio
import logging
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayActorError, RayError
from ray.serve import Application
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy
from ray.serve.context import _get_global_client
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle
from starlette.types import ASGIApp

from vecmill.errors import InvalidConfig, SetupError
from vecmill.values.environment import environment_variables
from vecmill_ray.serving.forwarding import Failover, ForwardedRequest, ForwardedResponse
from vecmill_ray.serving.model_plan import (
    PlannedModel,
    ServingPlan,
    behind_router,
    on_all_interfaces,
    read_plan,
)
from vecmill_ray.serving.model_replica import BATCHES_OFF, ModelReplica, OneRequestId, RoutedReplica
from vecmill_ray.serving.ray_settings import (
    RaySettings,
    check_host,
    controller_options,
    drain_wait_s,
    format_url,
    replica_environment,
    stop_timeout_s,
)
from vecmill_ray.serving.router import router_routes, router_service
from vecmill_server.app import create_app
from vecmill_server.base.errors import ModelUnavailable
from vecmill_server.base.settings import ServerSettings
from vecmill_server.service.service import Service
from vecmill_server.telemetry.logs import configure_logging

ROUTER = "router"

# Serve's own limit on requests in a replica. The queue of the replica refuses requests long before.
OUT_OF_REACH = 1_000_000

FAILOVER = Failover(lost=(RayActorError,))

POLICY = "vecmill_ray.serving.autoscaling:QueuedWork"


def build_application(args: dict[str, Any]) -> Application:
    """Return the application for the arguments of `vecmill_ray.serving.build`. Raises `SetupError`."""
    values = dict(args)
    path = values.pop("config", None)
    if not path:
        raise InvalidConfig("The argument config is missing: the path of the configuration file.")
    settings = RaySettings.of(values)
    plan = read_plan(Path(path), cores=settings.replica_cores)
    return bind_plan(on_all_interfaces(plan), settings, count_nodes())


def count_nodes() -> int:
    """Return the number of nodes of the cluster that this process belongs to, 1 if there is none."""
    return max(1, sum(node["Alive"] for node in ray.nodes())) if ray.is_initialized() else 1


def bind_plan(plan: ServingPlan, settings: RaySettings, nodes: int) -> Application:
    """Return the application of a plan for a cluster of so many nodes.

    The only model takes the requests itself, several have routers.
    """
    if len(plan.models) == 1:
        return _bind_model(serve.ingress()(ModelReplica), plan.models[0], settings)
    models = {model.name: _bind_model(RoutedReplica, behind_router(model), settings) for model in plan.models}
    options = _common_options(plan.settings)
    # A router waits more than it computes. With a core of its own, a small cluster would have no room for it.
    options["ray_actor_options"] |= {"num_cpus": 0}
    count = settings.count_routers(nodes)
    # The loss of a node then leaves the routers of the other nodes.
    options |= {
        "num_replicas": count,
        "max_replicas_per_node": math.ceil(count / settings.count_nodes(nodes)),
    }
    router = serve.deployment(serve.ingress()(Router), name=ROUTER, **options)
    return router.bind(plan, models)


def _bind_model(replica: type, model: PlannedModel, settings: RaySettings) -> Application:
    options = _common_options(model.settings)
    options["ray_actor_options"] |= {"num_cpus": settings.replica_cores, "num_gpus": settings.replica_gpus}
    if settings.scales:
        options["autoscaling_config"] = _autoscaling(settings)
    else:
        options["num_replicas"] = settings.replicas
    deployment = serve.deployment(replica, name=model.deployment, **options)
    return deployment.bind(model)


def _common_options(settings: ServerSettings) -> dict[str, Any]:
    return {
        "max_ongoing_requests": OUT_OF_REACH,
        "max_queued_requests": -1,
        "graceful_shutdown_wait_loop_s": drain_wait_s(settings),
        "graceful_shutdown_timeout_s": stop_timeout_s(settings),
        "ray_actor_options": {"runtime_env": {"env_vars": replica_environment(settings)}},
        # The server writes a line for each request itself.
        "logging_config": {"enable_access_log": False},
    }


def _autoscaling(settings: RaySettings) -> AutoscalingConfig:
    return AutoscalingConfig(
        min_replicas=settings.replicas,
        max_replicas=settings.max_replicas,
        upscale_delay_s=settings.upscale_delay_s,
        downscale_delay_s=settings.downscale_delay_s,
        policy=AutoscalingPolicy(policy_function=POLICY, policy_kwargs={"queue_s": settings.queue_s}),
    )


class Router:
    """The class of the router's deployment. `models` are the handles of the deployments, by served name."""

    def __init__(self, plan: ServingPlan, models: dict[str, DeploymentHandle]) -> None:
        # The replicas write the lines about requests, with the numbers of texts and tokens.
        configure_logging(plan.settings)
        plan = replace(plan, settings=replace(plan.settings, access_log=False))
        service, self._mills = router_service(plan)
        self._service: Service = replace(service, batches_off=BATCHES_OFF)
        self._models = models
        self._streams = {name: handle.options(stream=True) for name, handle in models.items()}

    async def __serve_build_asgi_app__(self) -> ASGIApp:
        """Return the application, when a replica of each model has started."""
        found = await asyncio.gather(*(self._models[name].find_tasks.remote() for name in self._mills))
        for mill, tasks in zip(self._mills.values(), found, strict=True):
            mill.tasks = tasks
        routes = router_routes(self._service, self._forward)
        return OneRequestId(create_app(self._service, routes=routes))

    async def _forward(self, name: str, request: ForwardedRequest) -> ForwardedResponse:
        limit_s = self._mills[name].config.queue.longest_s
        try:
            return await FAILOVER.ask(lambda: self._streams[name].answer.remote(request), name, limit_s)
        except (RayError, RayServeException) as error:
            raise ModelUnavailable(
                f"No replica of the model `{name}` has answered. Another replica may answer."
            ) from error


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
