"""Probes: is the process alive, and should requests be sent to it. None of them waits for work."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vecmill_server.documents import encode_json
from vecmill_server.service import Service


def health_routes(service: Service) -> list[Route]:
    """`/livez` and `/readyz`; clients and platforms ask for the latter under other names too."""
    health = Health(service)
    return [
        Route("/livez", health.live, methods=["GET"], name="livez"),
        Route("/readyz", health.ready, methods=["GET"], name="readyz"),
        Route("/health", health.ready, methods=["GET"], name="health"),
        Route("/ping", health.ready, methods=["GET"], name="health"),
        Route("/", health.ready, methods=["GET"], name="health"),
    ]


class Health:
    """Tells the truth about the process."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def live(self, request: Request) -> Response:
        """200 whenever the event loop still runs."""
        return self._response(200, "alive")

    async def ready(self, request: Request) -> Response:
        """200 if requests are welcome; 503 while loading, while stopping, and after a lane was lost."""
        service = self._service
        if service.is_ready:
            return self._response(200, "ready")
        states = [model.mill.state.value for model in service.catalog]
        status = "stopping" if not service.drain.is_serving else next(s for s in states if s != "ready")
        return self._response(503, status)

    def _response(self, status_code: int, status: str) -> Response:
        body = encode_json({"status": status, "unix": self._service.wall_clock()})
        headers = {"retry-after": "2"} if status_code == 503 else None
        return Response(body, status_code, headers, media_type="application/json")
