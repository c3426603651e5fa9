"""`/metrics`, for Prometheus."""

from collections.abc import Sequence

from prometheus_client import generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vecmill.models import Task
from vecmill_server.metric_aliases import AliasCollector, ServedRoutes
from vecmill_server.metrics import CONTENT_TYPE
from vecmill_server.routes.work import Endpoint
from vecmill_server.service import Service


def metrics_routes(service: Service, others: Sequence[Route]) -> list[Route]:
    """The one route; `others` are those that are measured besides it."""
    peers = service.settings.metric_aliases
    aliases = AliasCollector(service.metrics.registry, peers, _served(service, others)) if peers else None

    async def metrics(request: Request) -> Response:
        body = service.metrics.render()
        if aliases is not None:
            body += generate_latest(aliases)
        return Response(body, headers={"content-type": CONTENT_TYPE})

    return [Route("/metrics", metrics, methods=["GET"], name="metrics")]


def _served(service: Service, routes: Sequence[Route]) -> ServedRoutes:
    models = {model.name: model for model in service.catalog}
    methods: dict[str, set[str]] = {}
    for route in routes:
        methods.setdefault(route.name, set()).update((route.methods or set()) - {"HEAD"})

    def find_task(model: str) -> Task | None:
        return models[model].task

    return ServedRoutes(
        methods={name: "|".join(sorted(those)) for name, those in methods.items()},
        computing=frozenset(route.name for route in routes if isinstance(route.endpoint, Endpoint)),
        tasks=find_task,
    )
