"""The routes of the liveness and readiness probes, which never wait for a model."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vecmill.values.clock import Clock, monotonic
from vecmill_server.app.browser_page import BrowserPage, ConsolePage, wants_page
from vecmill_server.base import json_schema
from vecmill_server.base.catalog import ModelState
from vecmill_server.base.error_responses import UNAVAILABLE_RETRY_S
from vecmill_server.base.json_io import json_response
from vecmill_server.base.json_schema import Component
from vecmill_server.openapi.operations import Paths, as_json, at, get
from vecmill_server.service.service import Service


def health_routes(service: Service, page: BrowserPage | ConsolePage) -> list[Route]:
    """Return `/livez`, `/readyz`, and the other names of `/readyz` that clients and platforms use.

    Browsers get `page` at `/`.
    """
    health = Health(service, page)
    return [
        Route("/livez", health.live, methods=["GET"], name="livez"),
        Route("/readyz", health.ready, methods=["GET"], name="readyz"),
        Route("/health", health.ready, methods=["GET"], name="health"),
        Route("/ping", health.ready, methods=["GET"], name="health"),
        Route("/", health.root, methods=["GET"], name="health"),
    ]


class Health:
    """The endpoints of the probes."""

    def __init__(self, service: Service, page: BrowserPage | ConsolePage, clock: Clock = monotonic) -> None:
        self._service = service
        self._clock = clock
        self._page = page

    async def live(self, request: Request) -> Response:
        """Answer 200 if the event loop runs."""
        return _respond(self._service, 200, "alive")

    async def ready(self, request: Request) -> Response:
        """Answer 200 if a load balancer should send requests here, with the state of each model."""
        self._service.drain.note_probe(self._clock())
        return tell_readiness(self._service)

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


def tell_readiness(service: Service) -> Response:
    """Return the response to a readiness probe, without noting that one has asked."""
    models = [{"name": model.name, "state": model.state, "reason": model.reason} for model in service.catalog]
    if service.is_ready:
        return _respond(service, 200, ModelState.READY, models=models)
    if not service.drain.is_serving:
        return _respond(service, 503, "stopping", models=models)
    states = {model["state"] for model in models}
    worst = next((state for state in _WORST_FIRST if state in states), ModelState.LOADING)
    return _respond(service, 503, worst, models=models)


def _respond(service: Service, status_code: int, status: str, **more: object) -> Response:
    headers = {"retry-after": f"{UNAVAILABLE_RETRY_S:.0f}"} if status_code == 503 else None
    return json_response({"status": status, "unix": service.wall_clock(), **more}, status_code, headers)


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
_READINESS = as_json(Component("Status", {**_STATUS, "models": [_MODEL_STATUS]}))
# A page where `Accept` has text/html and not application/json.
_READINESS_OR_PAGE = {**_READINESS, "text/html": {"schema": json_schema.STRING}}


def _describe_ready(summary: str, content: Mapping[str, Any] = _READINESS) -> dict[str, Any]:
    operation = get(summary, content)
    operation["responses"]["503"] = {
        "description": "The server is loading or stopping, or none of its models can be served",
        "content": content,
    }
    return operation


PATHS: Paths = {
    "/livez": {"get": get("Liveness: the process runs", _ALIVE)},
    **at("/readyz", "/health", "/ping", get=_describe_ready("Readiness: at least one model is ready")),
    "/": {"get": _describe_ready("The same as /readyz, or a page for browsers", _READINESS_OR_PAGE)},
}
