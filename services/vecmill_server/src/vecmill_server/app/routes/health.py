"""The routes of the liveness and readiness probes, which never wait for a model."""

from collections.abc import Mapping, Set
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vecmill.values.clock import Clock, monotonic
from vecmill_server.app.browser_page import BrowserPage, ConsolePage, wants_page
from vecmill_server.app.openapi.operations import Api, Paths, as_json, at, get
from vecmill_server.base import json_schema
from vecmill_server.base.error_responses import UNAVAILABLE_RETRY_S
from vecmill_server.base.json_io import json_response
from vecmill_server.base.json_schema import Component
from vecmill_server.catalog.catalog import ModelState
from vecmill_server.service.service import Service

# Kubernetes' and NVIDIA's names.
LIVE_PATHS = ("/livez", "/v1/health/live")
READY_PATHS = ("/readyz", "/v1/health/ready")
# Those of Weaviate's containers, which answer 204.
WEAVIATE_LIVE, WEAVIATE_READY = "/.well-known/live", "/.well-known/ready"


def health_routes(service: Service, page: BrowserPage | ConsolePage) -> list[Route]:
    """Return `/livez`, `/readyz`, and the other names of `/readyz` that clients and platforms use.

    Browsers get `page` at `/`.
    """
    health = Health(service, page)
    return [
        *(Route(path, health.live, methods=["GET"], name="livez") for path in LIVE_PATHS),
        *(Route(path, health.ready, methods=["GET"], name="readyz") for path in READY_PATHS),
        Route(WEAVIATE_LIVE, health.live_for_weaviate, methods=["GET"], name="livez"),
        Route(WEAVIATE_READY, health.ready_for_weaviate, methods=["GET"], name="readyz"),
        Route("/health", health.health, methods=["GET"], name="health"),
        Route("/ping", health.ready, methods=["GET"], name="health"),
        Route("/", health.root, methods=["GET"], name="health"),
        Route("/", health.options, methods=["OPTIONS"], name="health"),
    ]


class Health:
    """The endpoints of the probes."""

    def __init__(self, service: Service, page: BrowserPage | ConsolePage, clock: Clock = monotonic) -> None:
        self._service = service
        self._clock = clock
        self._page = page

    async def live(self, request: Request) -> Response:
        """Answer 200 if the event loop runs."""
        return _respond(200, {"status": "alive", "unix": self._service.wall_clock()})

    async def ready(self, request: Request) -> Response:
        """Answer 200 if a load balancer should send requests here, with the state of each model."""
        self._service.drain.note_probe(self._clock())
        return tell_readiness(self._service)

    async def live_for_weaviate(self, request: Request) -> Response:
        """Answer 204 if the event loop runs."""
        return Response(status_code=204)

    async def ready_for_weaviate(self, request: Request) -> Response:
        """Answer 204 where `ready` answers 200."""
        answer = await self.ready(request)
        return Response(status_code=204) if answer.status_code == 200 else answer

    async def health(self, request: Request) -> Response:
        """Answer as `ready`, in the forms of Infinity and TEI.

        In Infinity's form the body of a 200 is the time alone. The states of the models are added while one
        of them is failed, lost or degraded. A 503 has TEI's error too.
        """
        self._service.drain.note_probe(self._clock())
        status_code, body = _describe_readiness(self._service)
        if status_code == 503:
            sentence = f"The server is not ready: {body['status']}."
            body |= {"error": sentence, "error_type": "Unhealthy"}
        elif all(model["reason"] is None for model in body["models"]):
            body = {"unix": body["unix"]}
        return _respond(status_code, body)

    async def root(self, request: Request) -> Response:
        """Answer as `ready`, with a page in place of JSON if a browser asks."""
        if not wants_page(request.scope):
            return await self.ready(request)
        # A person is no load balancer, for which a stop would have to wait.
        answer = tell_readiness(self._service)
        headers, body = self._page.render(request.scope)
        page = Response(body, answer.status_code)
        page.raw_headers = [*headers, *(pair for pair in answer.raw_headers if pair[0] == b"retry-after")]
        return page

    async def options(self, request: Request) -> Response:
        """Answer as `ready`, without a body: HAProxy's checks ask so by default."""
        answer = await self.ready(request)
        retry = {name: value for name, value in answer.headers.items() if name == "retry-after"}
        return Response(
            status_code=answer.status_code, headers={"allow": "GET, HEAD, OPTIONS, POST", **retry}
        )


def tell_readiness(service: Service) -> Response:
    """Return the response to a readiness probe, without noting that one has asked."""
    return _respond(*_describe_readiness(service))


def _describe_readiness(service: Service) -> tuple[int, dict[str, Any]]:
    """Return the status code of a readiness probe, and its body."""
    models = [{"name": model.name, "state": model.state, "reason": model.reason} for model in service.catalog]
    status = _sum_up(service, {model["state"] for model in models})
    body = {"status": status, "unix": service.wall_clock(), "models": models}
    return 200 if status == ModelState.READY else 503, body


def _sum_up(service: Service, states: Set[object]) -> str:
    if service.is_ready:
        return ModelState.READY
    if not service.drain.is_serving:
        return "stopping"
    return next((state for state in _WORST_FIRST if state in states), ModelState.LOADING)


def _respond(status_code: int, body: Mapping[str, object]) -> Response:
    headers = {"retry-after": f"{UNAVAILABLE_RETRY_S:.0f}"} if status_code == 503 else None
    return json_response(body, status_code, headers)


# The status of a server that is not ready is the first of these states that one of its models is in.
_WORST_FIRST = (ModelState.LOADING, ModelState.LOST, ModelState.FAILED, ModelState.DEGRADED)

_STATUS = {"status": str, "unix": {"type": "number"}}
_MODEL_STATUS = {
    "name": str,
    "state": json_schema.described(
        json_schema.word(*map(str, ModelState)),
        "The state of the model. One that is not loaded is loaded at its next request.",
    ),
    "reason": json_schema.described(json_schema.OPTIONAL_STRING, "Why it failed, is lost or degraded."),
}
_ALIVE = as_json(Component("Alive", _STATUS))
_READY_STATUS = {**_STATUS, "models": [_MODEL_STATUS]}
_READINESS = as_json(Component("Status", _READY_STATUS))
_HEALTH = as_json(Component("Health", json_schema.an_object(("unix",), _READY_STATUS)))
_UNHEALTHY = as_json(Component("Unhealthy", {**_READY_STATUS, "error": str, "error_type": "Unhealthy"}))
# A page where `Accept` has text/html and not application/json.
_READINESS_OR_PAGE = {**_READINESS, "text/html": {"schema": json_schema.STRING}}


def _describe_ready(
    summary: str, content: Mapping[str, Any] = _READINESS, unready: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    operation = get(summary, content)
    operation["responses"]["503"] = {
        "description": "The server is loading or stopping, or none of its models can be served",
        "content": unready or content,
    }
    return operation


def _describe_options() -> dict[str, Any]:
    statuses = {"200": "Done", "503": "As /readyz"}
    return {
        "summary": "The status of /readyz alone, for load balancers",
        "tags": [Api.SERVER],
        "responses": {status: {"description": text} for status, text in statuses.items()},
    }


def _answering_204(summary: str, operation: dict[str, Any]) -> dict[str, Any]:
    responses = {status: text for status, text in operation["responses"].items() if status != "200"}
    done = {"204": {"description": "Done"}}
    return {"summary": summary, "tags": [Api.WEAVIATE], "responses": {**done, **responses}}


PATHS: Paths = {
    **at(*LIVE_PATHS, get=get("Liveness: the process runs", _ALIVE)),
    **at(*READY_PATHS, "/ping", get=_describe_ready("Readiness: at least one model is ready")),
    WEAVIATE_LIVE: {"get": _answering_204("The same as /livez, for Weaviate", get("", _ALIVE))},
    WEAVIATE_READY: {"get": _answering_204("The same as /readyz, for Weaviate", _describe_ready(""))},
    "/health": {
        "get": _describe_ready(
            "The same as /readyz, for the clients of Infinity and TEI", _HEALTH, _UNHEALTHY
        )
    },
    "/": {
        "get": _describe_ready("The same as /readyz, or a page for browsers", _READINESS_OR_PAGE),
        "options": _describe_options(),
    },
}
