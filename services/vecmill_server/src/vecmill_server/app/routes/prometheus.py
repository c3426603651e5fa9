"""The route `/metrics`, with the metrics of the server in the format of Prometheus.

How it works. Everybody may ask, as often as they like, so a page is shared: the counts are copied on the
event loop, the page is written in a thread, and who asks within `PAGE_AGE_S` gets the same page. Each format
has a page of its own. With several processes, the page of one of them may be half as old, and the page that
is made of them as well, so the page of all is no older than that of one process would be.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vecmill.values.own_thread import call_in_thread
from vecmill.values.task import Task
from vecmill_server.app.openapi.operations import Paths, get
from vecmill_server.app.routes.endpoint import Endpoint
from vecmill_server.app.shared_page import SharedPage
from vecmill_server.base.json_schema import STRING
from vecmill_server.service.service import Service
from vecmill_server.telemetry.metrics.metric_aliases import AliasTable, ServedRoutes
from vecmill_server.telemetry.metrics.server_metrics import MetricsCopy

TEXT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
OPENMETRICS_TYPE = openmetrics.CONTENT_TYPE_LATEST
# The format that has exemplars, for clients that ask for it.
OPENMETRICS = "application/openmetrics-text"

# The counts of a page were copied at most this long before the page was asked for.
PAGE_AGE_S = 1.0

Write = Callable[[Sequence[Metric]], bytes]


def metrics_routes(service: Service, others: Sequence[Route]) -> list[Route]:
    """Return the route. `others` are the routes whose requests the metrics count."""
    peers = service.settings.metric_aliases
    aliases = AliasTable(peers, _served(service, others)) if peers else None

    async def render(write: Write) -> bytes:
        copy = service.metrics.copy()
        return await call_in_thread("vecmill-metrics", partial(_write_page, write, copy, aliases))

    def share(write: Write, longest_age_s: float = PAGE_AGE_S) -> SharedPage:
        return SharedPage(partial(render, write), longest_age_s, service.page_clock)

    siblings = service.siblings
    longest_age_s = PAGE_AGE_S if siblings is None else PAGE_AGE_S / 2
    read = partial(render, write_text) if siblings is None else siblings.merge
    if siblings is not None:
        siblings.offer(share(write_text, longest_age_s).read)
    if service.history is not None:
        service.history.read_from(read)  # not by the shared page, which would be older for the next scrape
        read = partial(service.history.observe, read)
    text = SharedPage(read, longest_age_s, service.page_clock)
    exemplars = share(write_openmetrics)

    async def metrics(request: Request) -> Response:
        # The page of several processes has no exemplars.
        if siblings is None and OPENMETRICS in request.headers.get("accept", ""):
            return Response(await exemplars.read(), headers={"content-type": OPENMETRICS_TYPE})
        return Response(await text.read(), headers={"content-type": TEXT_TYPE})

    return [Route("/metrics", metrics, methods=["GET"], name="metrics")]


def _write_page(write: Write, copy: MetricsCopy, aliases: AliasTable | None) -> bytes:
    families = copy.families()
    return write(families if aliases is None else [*families, *aliases.rename(copy.counts)])


@dataclass(frozen=True, slots=True)
class _Families(Collector):
    families: Sequence[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.families


def write_text(families: Sequence[Metric]) -> bytes:
    """Return the page in the text format of Prometheus, `TEXT_TYPE`. It has no exemplars."""
    return generate_latest(_Families(families))


def write_openmetrics(families: Sequence[Metric]) -> bytes:
    """Return the page in the format OpenMetrics, `OPENMETRICS_TYPE`."""
    # The default escaping replaces the colon in the names of samples, which is valid in vLLM's names.
    page: bytes = openmetrics.generate_latest(_Families(families), escaping=openmetrics.ALLOWUTF8)  # type: ignore[no-untyped-call]
    return page


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
