"""The Serve application: the deployments of a plan, and their options."""

import asyncio
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayActorError, RayError
from ray.serve import Application
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle
from starlette.types import ASGIApp

from vecmill.errors import InvalidConfig
from vecmill_ray.serving.forwarding import Failover, ForwardedRequest, ForwardedResponse
from vecmill_ray.serving.model_plan import (
    PlannedModel,
    ServingPlan,
    behind_router,
    on_all_interfaces,
    read_plan,
)
from vecmill_ray.serving.model_replica import BATCHES_OFF, ModelReplica, OneRequestId, RoutedReplica
from vecmill_ray.serving.ray_settings import RaySettings
from vecmill_ray.serving.router import router_routes, router_service
from vecmill_ray.serving.serve_environment import (
    drain_wait_s,
    replica_environment,
    stop_timeout_s,
)
from vecmill_server.app.asgi_app import create_app
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
        cards = await asyncio.gather(*(self._models[name].describe.remote() for name in self._mills))
        for mill, card in zip(self._mills.values(), cards, strict=True):
            mill.card = card
        routes = router_routes(self._service, self._forward)
        return OneRequestId(create_app(self._service, routes=routes))

    async def _forward(self, name: str, request: ForwardedRequest) -> ForwardedResponse:
        limit_s = self._mills[name].config.queue.timeout_s
        try:
            return await FAILOVER.ask(lambda: self._streams[name].answer.remote(request), name, limit_s)
        except (RayError, RayServeException) as error:
            raise ModelUnavailable(
                f"No replica of the model `{name}` has answered. Another replica may answer."
            ) from error
