"""The router of several models: the ASGI application of the server, with models in other processes.

How it works. The router reads the body of a request within the limits of the server, finds the model that
the request names as `vecmill serve` does, and forwards the request as it is. The replica checks the API key
again, because the key tells clients apart in its queue.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, cast

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from vecmill.batching.scheduler import Backlog
from vecmill.batching.ticket import CountsSnapshot
from vecmill.config import MillConfig
from vecmill.errors import DeadlineExceeded, NotReady
from vecmill.mill import Mill, MillState
from vecmill.values.task import Task
from vecmill_ray.serving.forwarding import ForwardedRequest, ForwardedResponse
from vecmill_ray.serving.model_plan import ServingPlan
from vecmill_server.app import describe_routes
from vecmill_server.app.browser_page import BrowserPage
from vecmill_server.app.request_options import requested_timeout_s
from vecmill_server.app.request_record import RequestContext
from vecmill_server.app.routes.alerts import alerts_routes
from vecmill_server.app.routes.batches import batches_routes
from vecmill_server.app.routes.docs import docs_routes
from vecmill_server.app.routes.endpoint import Endpoint, send_pieces
from vecmill_server.app.routes.health import health_routes
from vecmill_server.app.routes.models import LIST_PATHS, models_routes
from vecmill_server.app.routes.other_servers import routes_of_other_servers
from vecmill_server.app.routes.pinecone_models import pinecone_models_routes
from vecmill_server.app.routes.prometheus import metrics_routes
from vecmill_server.base.headers import index_headers
from vecmill_server.base.json_io import LARGE_BODY_BYTES, decode_object, encode_json
from vecmill_server.base.time_limit import limit_time
from vecmill_server.catalog.catalog import ServedModel
from vecmill_server.dialects.dialect import InferenceBody, InferenceRoute
from vecmill_server.dialects.dialect_routes import routes_by_path
from vecmill_server.dialects.fields import Json
from vecmill_server.service.bodies import UnlessClientLeaves, read_body
from vecmill_server.service.service import Service, assemble_service
from vecmill_server.telemetry.metrics.server_metrics import ServerMetrics

# Sends a request to a replica of the model with this name. Raises `ModelUnavailable`.
Forward = Callable[[str, ForwardedRequest], Awaitable[ForwardedResponse]]

# The paths whose response is made from the responses of all models, and the lists in it.
_MERGED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(LIST_PATHS, ("data", "models")),
    "/pinecone/models": ("models",),
    "/api/tags": ("models",),
    "/api/ps": ("models",),
}
# The paths that describe the first model.
_OF_FIRST_MODEL = ("/info", "/models/info", "/props")
_OF_NAMED_MODEL = "{id:path}"

# Replicas keep the time limit of a request. The router ends a request later, if there is no replica.
REPLICA_GRACE_S = 1.0


@dataclass(slots=True)
class RemoteMill:
    """The part of a `Mill` that the catalog and the metrics read, for a model in another process.

    `tasks` is `None` until a replica of the model has started.
    """

    config: MillConfig
    tasks: tuple[Task, ...] | None = None
    is_lost: bool = False

    @property
    def state(self) -> MillState:
        """The state of the model."""
        return MillState.LOADING if self.tasks is None else MillState.READY

    @property
    def description(self) -> Any:
        """The tasks of the model. Raises `NotReady` until they are known.

        Whether it embeds pictures is not known here: who sends pictures names the model.
        """
        if self.tasks is None:
            raise NotReady("The model is still loading.")
        return SimpleNamespace(task=self.tasks[0], tasks=self.tasks, pictures=None)

    @property
    def info(self) -> Any:
        """Raises `NotReady`, since the engine is in another process."""
        raise NotReady("The engine is in another process.")

    @property
    def backlog(self) -> Backlog:
        """Nothing: the work waits in the replicas."""
        return Backlog(0, 0, 0.0)

    @property
    def text_counts(self) -> CountsSnapshot:
        """Nothing: the texts are counted in the replicas."""
        return CountsSnapshot()


def router_service(plan: ServingPlan) -> tuple[Service, dict[str, RemoteMill]]:
    """Return the service of the router, and its mills by the names of the models. Raises `SetupError`."""
    mills = {model.name: RemoteMill(limit_time(model.choice.config or MillConfig())) for model in plan.models}
    models = [ServedModel(name, cast(Mill, mill)) for name, mill in mills.items()]
    settings = replace(plan.settings, console=False)  # its page needs routes that are not forwarded
    return assemble_service(models, settings, ServerMetrics()), mills


def router_routes(service: Service, forward: Forward) -> list[Route]:
    """Return the routes of the server, which forward to the models where the answer needs a model."""
    described = (
        *models_routes(service),
        *pinecone_models_routes(service),
        *routes_of_other_servers(service),
    )
    routes = [
        *(
            Route(path, ForwardingEndpoint(service, route, forward), methods=["POST"], name=route.name)
            for path, route in routes_by_path().items()
        ),
        *(take_over(route, service, forward) for route in described),
        *health_routes(service, BrowserPage(service)),
        *batches_routes(service),
        *docs_routes(service, describe_routes),
        *alerts_routes(),
    ]
    return [*routes, *metrics_routes(service, routes)]


class ForwardingEndpoint(Endpoint):
    """The endpoint of an inference route, which forwards requests to the model that they name."""

    def __init__(self, service: Service, route: InferenceRoute, forward: Forward) -> None:
        super().__init__(service, route)
        self._forward = forward

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = RequestContext.of(scope)
        with self._service.budget.hold() as held:
            context.respond = self._respond_unread
            body = await read_body(scope, receive, self._limits, held)
            context.has_body, context.respond = True, self._usual.style.respond
            is_large = len(body) > LARGE_BODY_BYTES
            json = await self._decode_large(body, held) if is_large else decode_object(body)
            if scope["path_params"]:
                json = {**json, **scope["path_params"]}
            kind = self.choose(json, self._options)
            context.respond = kind.style.respond
            timeout_s = requested_timeout_s(index_headers(scope))
            model = self._find_named(kind, json)
            del json
            request = ForwardedRequest.of(scope, body, context.request_id)
            with UnlessClientLeaves(scope, receive):
                response = await end_in_time(self._forward(model.name, request), timeout_s)
            held.reserve(len(response.body))
            await send_response(response, send)

    def _find_named(self, kind: type[InferenceBody], json: Json) -> ServedModel:
        """Return the model that a body names, or the first that suits it. Raises `VecmillError`."""
        name = json.get("model")
        if isinstance(name, str) and name:
            return self._service.catalog.resolve_serving(name)
        # Which models suit the request depends on the whole body.
        asked = kind.parse(json, self._options)
        return self._service.catalog.resolve_serving(asked.model, asked.request.tasks)


class ModelEndpoint:
    """An endpoint without a body, whose answer the models know."""

    def __init__(self, service: Service, forward: Forward) -> None:
        self._catalog = service.catalog
        self._forward = forward

    async def ask(self, name: str, scope: Scope) -> ForwardedResponse:
        """Return the response of a model to the request of `scope`. Raises `ModelUnavailable`."""
        request = ForwardedRequest.of(scope, b"", RequestContext.of(scope).request_id)
        return await self._forward(name, request)


class OneModel(ModelEndpoint):
    """The endpoint that describes the model of the path, or the first model."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = self._catalog.resolve(scope["path_params"].get("id")).name
        await send_response(await self.ask(name, scope), send)


class MergedLists(ModelEndpoint):
    """The endpoint that lists all models: `keys` are the lists in the response.

    If a model responds with an error, the endpoint sends the first such response as it is.
    """

    def __init__(self, service: Service, forward: Forward, keys: tuple[str, ...]) -> None:
        super().__init__(service, forward)
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        responses = await asyncio.gather(*(self.ask(model.name, scope) for model in self._catalog))
        for response in responses:
            if response.status >= HTTPStatus.BAD_REQUEST:
                await send_response(response, send)
                return
        bodies = [decode_object(response.body) for response in responses]
        merged = {**bodies[0], **{key: merge([body[key] for body in bodies]) for key in self._keys}}
        await send_pieces(send, [encode_json(merged)], [])


def take_over(route: Route, service: Service, forward: Forward) -> Route:
    """Return `route`, with an endpoint that asks the models if the route describes models."""
    endpoint: ModelEndpoint
    if route.path in _MERGED:
        endpoint = MergedLists(service, forward, _MERGED[route.path])
    elif _OF_NAMED_MODEL in route.path or route.path in _OF_FIRST_MODEL:
        endpoint = OneModel(service, forward)
    else:
        return route
    methods = sorted((route.methods or set()) - {"HEAD"})
    return Route(route.path, endpoint, methods=methods, name=route.name)


def merge(lists: Sequence[list[Any]]) -> list[Any]:
    """Return the first entry of each list, which is a model, and then the others, which are aliases."""
    return [*(each[0] for each in lists if each), *(entry for each in lists for entry in each[1:])]


async def end_in_time(forwarding: Awaitable[ForwardedResponse], timeout_s: float | None) -> ForwardedResponse:
    """Return the response of a replica to a request with this time limit, `None` if the client set none.

    Raises `DeadlineExceeded` `REPLICA_GRACE_S` after the limit.
    """
    limit = asyncio.timeout(None if timeout_s is None else timeout_s + REPLICA_GRACE_S)
    try:
        async with limit:
            return await forwarding
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise DeadlineExceeded("No replica of the model has answered within the time limit.") from error


async def send_response(response: ForwardedResponse, send: Send) -> None:
    """Send the response of a replica."""
    await send({"type": "http.response.start", "status": response.status, "headers": response.headers})
    await send({"type": "http.response.body", "body": response.body})
