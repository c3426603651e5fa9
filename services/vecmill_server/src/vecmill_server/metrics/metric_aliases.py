"""The aliases of metrics, with the names that dashboards for Infinity and Text Embeddings Inference use.

Nothing is counted twice: at each scrape, the metrics of the server's registry are renamed, and series whose
labels become equal are summed. A foreign metric without an equivalent here has no alias.

Source of the names and labels: prometheus-fastapi-instrumentator with its defaults, as Infinity uses it, and
TEI's router.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from vecmill.values.task import Task
from vecmill_server.middleware.request_contexts import NO_ROUTE
from vecmill_server.settings import MetricAliases

Labels = Mapping[str, str]

# Returns the labels of a series under its alias, or `None` to omit the series.
Relabel = Callable[[Labels], Labels | None]

_REQUESTS = "vecmill_http_requests"
_DURATIONS = "vecmill_http_request_duration_seconds"

# TEI's labels of errors, by reason. A reason that is not listed is its own label.
_TEI_FAILURES: Mapping[str, str] = MappingProxyType(
    {
        "queue_full": "overloaded",
        "input_too_long": "validation",
        "invalid_json": "validation",
        "invalid_request": "validation",
        "request_too_large": "validation",
        "unknown_prompt": "validation",
        "unsupported_task": "model_type",
        "device_lost": "inference",
        "inference_failed": "inference",
        "lane_lost": "inference",
        "non_finite_output": "inference",
    }
)
_PREDICTING_TASKS = frozenset({Task.RERANK, Task.CLASSIFY, Task.CLASSIFY_TOKENS})


@dataclass(frozen=True, slots=True)
class Alias:
    """The alias `name` of the metric `source`. Counters whose `kind` is `unknown` have no `_total`."""

    name: str
    source: str
    kind: str
    relabel: Relabel

    def rename(self, family: Metric) -> Metric:
        """Return `family` under the alias. Series with equal labels are summed, in order of appearance."""
        values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        for sample in family.samples:
            suffix = sample.name.removeprefix(family.name)
            labels = self.relabel(sample.labels)
            if suffix == "_created" or labels is None:
                continue
            if "le" in sample.labels:
                labels = {**labels, "le": sample.labels["le"]}
            key = (suffix, tuple(labels.items()))
            values[key] = values.get(key, 0.0) + sample.value
        renamed = Metric(self.name, f"Alias of {self.source}.", self.kind)
        for (suffix, labels_of_key), value in values.items():
            written = "" if self.kind == "unknown" else suffix
            renamed.add_sample(self.name + written, dict(labels_of_key), value)
        return renamed


@dataclass(frozen=True, slots=True)
class ServedRoutes:
    """The routes and models of the server, as the aliases need them.

    `methods` maps the name of a route to its HTTP methods. `computing` names the routes that run a model.
    `tasks` returns the task of a model, `None` until the model is described.
    """

    methods: Mapping[str, str]
    computing: frozenset[str]
    tasks: Callable[[str], Task | None] = field(repr=False)


class AliasCollector(Collector):
    """The metrics of `source` under the names of `peers`, computed at each scrape."""

    def __init__(self, source: Collector, peers: Sequence[MetricAliases], served: ServedRoutes) -> None:
        tables = {MetricAliases.INFINITY: infinity_aliases, MetricAliases.TEI: tei_aliases}
        self._source = source
        self._aliases = [alias for peer in dict.fromkeys(peers) for alias in tables[peer](served)]

    def collect(self) -> Iterable[Metric]:
        families = {family.name: family for family in self._source.collect()}
        return (alias.rename(families[alias.source]) for alias in self._aliases)


def infinity_aliases(served: ServedRoutes) -> list[Alias]:
    """Return the aliases for Infinity. The label `handler` is a slash and the name of the route."""

    def request(labels: Labels) -> Labels:
        return {**handler(labels), "status": f"{labels['status'][0]}xx"}

    def handler(labels: Labels) -> Labels:
        route = labels["route"]
        path = NO_ROUTE if route == NO_ROUTE else f"/{route}"
        return {"handler": path, "method": served.methods.get(route, "GET")}

    return [
        Alias("http_requests", _REQUESTS, "counter", request),
        Alias("http_request_duration_seconds", _DURATIONS, "histogram", handler),
        Alias("http_request_duration_highr_seconds", _DURATIONS, "histogram", _without_labels),
    ]


def tei_aliases(served: ServedRoutes) -> list[Alias]:
    """Return the aliases for TEI. Labels that TEI lacks, such as `model`, are kept."""

    def computed(labels: Labels) -> Labels | None:
        return {} if labels["route"] in served.computing else None

    def succeeded(labels: Labels) -> Labels | None:
        return computed(labels) if labels["status"] == "200" else None

    def failed(labels: Labels) -> Labels:
        return {"err": _TEI_FAILURES.get(labels["reason"], labels["reason"])}

    return [
        Alias("te_request_count", _REQUESTS, "unknown", computed),
        Alias("te_request_success", _REQUESTS, "unknown", succeeded),
        Alias("te_request_failure", "vecmill_http_errors", "unknown", failed),
        Alias("te_request_duration", _DURATIONS, "histogram", computed),
        Alias("te_request_queue_duration", "vecmill_queue_wait_seconds", "histogram", dict),
        Alias("te_request_inference_duration", "vecmill_inference_seconds", "histogram", dict),
        Alias("te_queue_size", "vecmill_queue_texts", "gauge", dict),
        Alias("te_batch_next_size", "vecmill_batch_texts", "histogram", dict),
        Alias("te_batch_next_tokens", "vecmill_batch_tokens", "histogram", dict),
        *_texts_aliases("embed", lambda model: served.tasks(model) not in _PREDICTING_TASKS),
        *_texts_aliases("predict", lambda model: served.tasks(model) in _PREDICTING_TASKS),
    ]


def _texts_aliases(kind: str, is_of_kind: Callable[[str], bool]) -> list[Alias]:
    """Return TEI's metrics of texts, for the models of one kind."""

    def of_kind(labels: Labels) -> Labels | None:
        return {"model": labels["model"]} if is_of_kind(labels["model"]) else None

    def done(labels: Labels) -> Labels | None:
        return of_kind(labels) if labels["outcome"] == "done" else None

    return [
        Alias(f"te_{kind}_count", "vecmill_texts_admitted", "unknown", of_kind),
        Alias(f"te_{kind}_success", "vecmill_texts_finished", "unknown", done),
        Alias(f"te_{kind}_queue_duration", "vecmill_queue_wait_seconds", "histogram", of_kind),
        Alias(f"te_{kind}_inference_duration", "vecmill_inference_seconds", "histogram", of_kind),
    ]


def _without_labels(_labels: Labels) -> Labels:
    return {}
