"""The route `/metrics`, with the metrics of the server in the format of Prometheus."""

from collections.abc import Sequence

from prometheus_client import generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vecmill.values.task import Task
from vecmill_server.json_schema import STRING
from vecmill_server.metric_aliases import AliasCollector, ServedRoutes
from vecmill_server.metrics import CONTENT_TYPE
from vecmill_server.openapi.operations import Paths, get
from vecmill_server.routes.endpoint import Endpoint
from vecmill_server.service import Service


def metrics_routes(service: Service, others: Sequence[Route]) -> list[Route]:
    """Return the route. `others` are the routes whose requests the metrics count."""
    peers = service.settings.metric_aliases
    aliases = AliasCollector(service.metrics.registry, peers, _served(service, others)) if peers else None

    siblings = service.siblings

    def render() -> bytes:
        body = service.metrics.render()
        return body if aliases is None else body + generate_latest(aliases)

    if siblings is not None:
        siblings.offer(render)

    async def metrics(request: Request) -> Response:
        body = render() if siblings is None else await siblings.merge(render())
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
        methods={name: "|".join(sorted(found)) for name, found in methods.items()},
        computing=frozenset(route.name for route in routes if isinstance(route.endpoint, Endpoint)),
        tasks=find_task,
    )


PATHS: Paths = {
    "/metrics": {"get": get("The metrics, in the format of Prometheus", {"text/plain": {"schema": STRING}})}
}
