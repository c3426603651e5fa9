"""The route `/metrics`, with the metrics of the server in the format of Prometheus."""

import asyncio
from collections.abc import Sequence

from prometheus_client import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vecmill.values.task import Task
from vecmill_server.json_schema import STRING
from vecmill_server.metrics.metric_aliases import AliasCollector, ServedRoutes
from vecmill_server.metrics.server_metrics import CONTENT_TYPE
from vecmill_server.openapi.operations import Paths, get
from vecmill_server.routes.endpoint import Endpoint
from vecmill_server.service import Service

# The format that has exemplars, for clients that ask for it. It ends with a line of its own.
OPENMETRICS = "application/openmetrics-text"
OPENMETRICS_END = b"# EOF\n"


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

    def render_openmetrics() -> bytes:
        body = _write_openmetrics(service.metrics.registry)
        return body if aliases is None else body.removesuffix(OPENMETRICS_END) + _write_openmetrics(aliases)

    async def metrics(request: Request) -> Response:
        if service.metrics.gpus.is_needed:
            await asyncio.to_thread(service.metrics.gpus.read)
        # The page of several processes has no exemplars.
        if siblings is None and OPENMETRICS in request.headers.get("accept", ""):
            headers = {"content-type": openmetrics.CONTENT_TYPE_LATEST}
            return Response(render_openmetrics(), headers=headers)
        body = render() if siblings is None else await siblings.merge(render())
        return Response(body, headers={"content-type": CONTENT_TYPE})

    return [Route("/metrics", metrics, methods=["GET"], name="metrics")]


def _write_openmetrics(metrics: Collector) -> bytes:
    # The default escaping replaces the colon in the names of samples, which is valid in vLLM's names.
    body: bytes = openmetrics.generate_latest(metrics, escaping=openmetrics.ALLOWUTF8)  # type: ignore[no-untyped-call]
    return body


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
        sole_model=next(iter(models)) if len(models) == 1 else None,
    )


PATHS: Paths = {
    "/metrics": {
        "get": get(
            "The metrics, in the format of Prometheus or, if the header Accept asks for it, of OpenMetrics",
            {"text/plain": {"schema": STRING}, OPENMETRICS: {"schema": STRING}},
        )
    }
}
