"""The routes of the liveness and readiness probes, which never wait for a model."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vecmill.values.clock import Clock, monotonic
from vecmill_server.json_io import encode_json
from vecmill_server.json_schema import Component
from vecmill_server.openapi.operations import Paths, as_json, at, get
from vecmill_server.service import Service


def health_routes(service: Service) -> list[Route]:
    """Return `/livez`, `/readyz`, and the other names of `/readyz` that clients and platforms use."""
    health = Health(service)
    return [
        Route("/livez", health.live, methods=["GET"], name="livez"),
        Route("/readyz", health.ready, methods=["GET"], name="readyz"),
        Route("/health", health.ready, methods=["GET"], name="health"),
        Route("/ping", health.ready, methods=["GET"], name="health"),
        Route("/", health.ready, methods=["GET"], name="health"),
    ]


class Health:
    """The endpoints of the probes."""

    def __init__(self, service: Service, clock: Clock = monotonic) -> None:
        self._service = service
        self._clock = clock

    async def live(self, request: Request) -> Response:
        """Answer 200 if the event loop runs."""
        return self._response(200, "alive")

    async def ready(self, request: Request) -> Response:
        """Answer 200 if the server accepts requests; 503 while it loads or stops, or after it lost a lane."""
        service = self._service
        service.drain.note_probe(self._clock())
        if service.is_ready:
            return self._response(200, "ready")
        states = [model.mill.state.value for model in service.catalog]
        status = "stopping" if not service.drain.is_serving else next(s for s in states if s != "ready")
        return self._response(503, status)

    def _response(self, status_code: int, status: str) -> Response:
        body = encode_json({"status": status, "unix": self._service.wall_clock()})
        headers = {"retry-after": "2"} if status_code == 503 else None
        return Response(body, status_code, headers, media_type="application/json")


_STATUS = as_json(Component("Status", {"status": str, "unix": {"type": "number"}}))


def _describe_ready(summary: str) -> dict[str, object]:
    operation = get(summary, _STATUS)
    operation["responses"]["503"] = {
        "description": "The server is loading, is stopping, or has lost a lane",
        "content": _STATUS,
    }
    return operation


PATHS: Paths = {
    "/livez": {"get": get("Liveness: the process runs", _STATUS)},
    "/readyz": {"get": _describe_ready("Readiness: the server accepts requests")},
    **at("/health", "/ping", "/", get=_describe_ready("The same as /readyz")),
}
