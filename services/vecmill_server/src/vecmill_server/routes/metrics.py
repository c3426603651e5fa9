"""`/metrics`, for Prometheus."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vecmill_server.metrics import CONTENT_TYPE
from vecmill_server.service import Service


def metrics_routes(service: Service) -> list[Route]:
    """The one route."""

    async def metrics(request: Request) -> Response:
        return Response(service.metrics.render(), headers={"content-type": CONTENT_TYPE})

    return [Route("/metrics", metrics, methods=["GET"], name="metrics")]
