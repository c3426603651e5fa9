"""The aliases of metrics, with the names that dashboards for Infinity, TEI and vLLM use.

Nothing is counted twice: for each page, the copied counts are renamed, and series whose labels become equal
are summed. A foreign metric without an equivalent here has no alias.

Source of the names and labels: prometheus-fastapi-instrumentator with its defaults, as Infinity uses it, the
router of TEI (Text Embeddings Inference), and the module `vllm.v1.metrics.loggers` of vLLM.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.metrics_core import Metric

from vecmill.values.task import Task
from vecmill_server.base.settings import MetricAliases
from vecmill_server.telemetry.metrics import definitions
from vecmill_server.telemetry.metrics.definitions import NO_ROUTE, Outcome

Labels = Mapping[str, str]

# Returns the labels of a series under its alias, or `None` to omit the series.
Relabel = Callable[[Labels], Labels | None]

_REQUESTS = definitions.REQUESTS.name
_DURATIONS = definitions.DURATIONS.name

# TEI's labels of errors, by reason. A reason that is not listed is its own label.
_TEI_FAILURES: Mapping[str, str] = {
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
    "tokenization_failed": "tokenization",
}
# vLLM's reasons why a request finished, by the outcome of a text.
_VLLM_REASONS: Mapping[str, str] = {
    Outcome.DONE: "stop",
    Outcome.FAILED: "error",
    Outcome.EXPIRED: "abort",
    Outcome.CANCELLED: "abort",
}
# vLLM numbers the engines of one model.
_VLLM_ENGINE = "0"
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
    `tasks` returns the task of a model, `None` until the model is described. `sole_model` is the name of the
    model if the server has one model, otherwise `None`.
    """

    methods: Mapping[str, str]
    computing: frozenset[str]
    tasks: Callable[[str], Task | None] = field(repr=False)
    sole_model: str | None = None


class AliasTable:
    """The metrics of the server under the names of `peers`."""

    def __init__(self, peers: Sequence[MetricAliases], served: ServedRoutes) -> None:
        tables = {
            MetricAliases.INFINITY: infinity_aliases,
            MetricAliases.TEI: tei_aliases,
            MetricAliases.VLLM: vllm_aliases,
        }
        self._aliases = [alias for peer in dict.fromkeys(peers) for alias in tables[peer](served)]

    def rename(self, counts: Iterable[Metric]) -> list[Metric]:
        """Return the counts that have an alias, under their aliases."""
        families = {family.name: family for family in counts}
        return [alias.rename(families[alias.source]) for alias in self._aliases]


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
        Alias("http_request_duration_highr_seconds", _DURATIONS, "histogram", lambda _: {}),
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
        Alias("te_request_failure", definitions.ERRORS.name, "unknown", failed),
        Alias("te_request_duration", _DURATIONS, "histogram", computed),
        Alias("te_request_queue_duration", definitions.QUEUE_WAITS.name, "histogram", dict),
        Alias("te_request_inference_duration", definitions.INFERENCE.name, "histogram", dict),
        Alias("te_queue_size", definitions.QUEUE_TEXTS.name, "gauge", dict),
        Alias("te_batch_next_size", definitions.BATCH_TEXTS.name, "histogram", dict),
        Alias("te_batch_next_tokens", definitions.BATCH_TOKENS.name, "histogram", dict),
        *_texts_aliases("embed", lambda model: served.tasks(model) not in _PREDICTING_TASKS),
        *_texts_aliases("predict", lambda model: served.tasks(model) in _PREDICTING_TASKS),
    ]


def vllm_aliases(served: ServedRoutes) -> list[Alias]:
    """Return the aliases for vLLM, for which each text is a request.

    HTTP requests have no label for the model, so the alias of their duration needs a sole model.
    """

    def of_model(labels: Labels) -> Labels:
        return {"model_name": labels["model"], "engine": _VLLM_ENGINE}

    def finished(labels: Labels) -> Labels:
        return {**of_model(labels), "finished_reason": _VLLM_REASONS[labels["outcome"]]}

    def of_sole_model(labels: Labels) -> Labels | None:
        if served.sole_model is None or labels["route"] not in served.computing:
            return None
        return of_model({"model": served.sole_model})

    return [
        Alias("vllm:num_requests_running", definitions.TEXTS_RUNNING.name, "gauge", of_model),
        Alias("vllm:num_requests_waiting", definitions.QUEUE_TEXTS.name, "gauge", of_model),
        Alias("vllm:prompt_tokens", definitions.TOKENS.name, "counter", of_model),
        Alias("vllm:request_success", definitions.TEXTS_FINISHED.name, "counter", finished),
        Alias("vllm:iteration_tokens_total", definitions.BATCH_TOKENS.name, "histogram", of_model),
        Alias("vllm:request_queue_time_seconds", definitions.QUEUE_WAITS.name, "histogram", of_model),
        Alias("vllm:request_inference_time_seconds", definitions.INFERENCE.name, "histogram", of_model),
        Alias("vllm:e2e_request_latency_seconds", _DURATIONS, "histogram", of_sole_model),
    ]


def _texts_aliases(kind: str, is_of_kind: Callable[[str], bool]) -> list[Alias]:
    """Return TEI's metrics of texts, for the models of one kind."""

    def of_kind(labels: Labels) -> Labels | None:
        return {"model": labels["model"]} if is_of_kind(labels["model"]) else None

    def done(labels: Labels) -> Labels | None:
        return of_kind(labels) if labels["outcome"] == "done" else None

    return [
        Alias(f"te_{kind}_count", definitions.TEXTS_ADMITTED.name, "unknown", of_kind),
        Alias(f"te_{kind}_success", definitions.TEXTS_FINISHED.name, "unknown", done),
        Alias(f"te_{kind}_queue_duration", definitions.QUEUE_WAITS.name, "histogram", of_kind),
        Alias(f"te_{kind}_inference_duration", definitions.INFERENCE.name, "histogram", of_kind),
    ]
