"""The Prometheus metrics of the server, in a registry of their own.

Every label has a fixed set of values (routes, statuses, reasons, models, lanes), so the number of
series does not depend on what clients send.
"""

import platform
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import StrEnum
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from vecmill.errors import NotReady
from vecmill.mill import Mill
from vecmill.values.observer import BatchRecord, LaneState, Observer, Rejection
from vecmill.values.timeline import BatchTimeline
from vecmill_server import __version__
from vecmill_server.byte_budget import ByteBudget
from vecmill_server.error_responses import REASONS
from vecmill_server.tracing.trace import exemplar_of

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

# The labels of an exemplar, which links a measured value to a trace.
Exemplar = dict[str, str]
# Takes the name of a model and the timeline of a batch.
OnBatch = Callable[[str, BatchTimeline], None]

# The status, in metrics and logs only, of a request whose client disconnected before the response.
CLIENT_GONE_STATUS = 499

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
_SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75)


class Outcome(StrEnum):
    """The outcome of an admitted text."""

    DONE = "done"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class ServerMetrics:
    """The registry, the counters of HTTP requests and batches, and an observer for each model."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "vecmill_http_requests",
            "Answered requests; status 499 means that the client disconnected.",
            ("route", "status"),
            registry=self.registry,
        )
        self._durations = Histogram(
            "vecmill_http_request_duration_seconds",
            "Time from the request headers to the end of the response.",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._errors = Counter("vecmill_http_errors", "Error responses.", ("reason",), registry=self.registry)
        for reason in REASONS:
            self._errors.labels(reason)
        self._unknown_fields = Counter(
            "vecmill_unknown_fields",
            "Fields of requests that the server does not know.",
            ("route",),
            registry=self.registry,
        )
        self._batch_lines = Counter(
            "vecmill_batch_api_lines",
            "Ended requests of batches, by outcome.",
            ("outcome",),
            registry=self.registry,
        )
        self._batches_ended = Counter(
            "vecmill_batch_api_batches", "Ended batches, by status.", ("status",), registry=self.registry
        )
        _add_process_metrics(self.registry)
        self._model_metrics = _ModelMetrics(self.registry)
        self._queues = _QueueCollector()
        self.registry.register(self._queues)
        self._log_lines = _LogCollector()
        self.registry.register(self._log_lines)
        # `labels` takes a lock and builds a key, so its results are cached.
        self._request_children: dict[tuple[str, int], Counter] = {}
        self._duration_children: dict[str, Histogram] = {}

    def request_done(
        self, route: str, status: int, duration_s: float, exemplar: Exemplar | None = None
    ) -> None:
        """Count one request. `route` must be a name from the route table."""
        counter = self._request_children.get((route, status))
        if counter is None:
            counter = self._request_children[route, status] = self._requests.labels(route, status)
            self._duration_children.setdefault(route, self._durations.labels(route))
        counter.inc()
        self._duration_children[route].observe(duration_s, exemplar)

    def error_answered(self, reason: str) -> None:
        """Count one error. `reason` must be one of `error_responses.REASONS`."""
        self._errors.labels(reason).inc()

    def count_unknown_names(self) -> Callable[[], None]:
        """Add the counter of requests with unknown model names, and return its increment."""
        text = "Requests with an unknown model name that --alias '*' served."
        counter = Counter("vecmill_unknown_model_names", text, registry=self.registry)
        return counter.inc

    def unknown_fields(self, route: str, count: int) -> None:
        """Count unknown fields. `route` must be a name from the route table."""
        self._unknown_fields.labels(route).inc(count)

    def batch_lines(self, *, completed: int, failed: int, dropped: int) -> None:
        """Count batch requests whose results are stored; `dropped` requests were not run."""
        for outcome, count in (("completed", completed), ("failed", failed), ("dropped", dropped)):
            self._batch_lines.labels(outcome).inc(count)

    def batch_ended(self, status: str) -> None:
        """Count one batch. `status` must be one of `batches.objects.BatchStatus`."""
        self._batches_ended.labels(status).inc()

    def observe_model(self, model: str, on_batch: OnBatch | None = None) -> "ModelObserver":
        """Return an observer that updates the metrics of the model with that name.

        `on_batch` gets the name of the model and the timeline of each batch, for tracing.
        """
        return ModelObserver(self._model_metrics, model, on_batch)

    def watch_queue(self, model: str, mill: Mill) -> None:
        """Report the queue of a model, read at each scrape."""
        self._queues.mills[model] = mill

    def watch_model(self, model: str, is_ready: Callable[[], bool]) -> None:
        """Report whether a model is ready, read at each scrape."""
        self._queues.is_ready[model] = is_ready

    def watch_log(self, dropped: Callable[[], int]) -> None:
        """Report the number of dropped log lines, read at each scrape."""
        self._log_lines.dropped = dropped

    def watch_budget(self, budget: ByteBudget) -> None:
        """Report the bytes that `budget` holds, read at each scrape."""
        held = Gauge(
            "vecmill_buffered_bytes",
            "Bytes of requests and responses that the server holds now.",
            registry=self.registry,
        )
        held.set_function(lambda: budget.held)

    def render(self) -> bytes:
        """Return all metrics in the format `CONTENT_TYPE`."""
        return generate_latest(self.registry)


def _add_process_metrics(registry: CollectorRegistry) -> None:
    """Add the memory, processor time and open files of the process (Linux only), and its versions."""
    ProcessCollector(registry=registry)
    build = Gauge(
        "vecmill_build_info",
        "Always 1. The labels have the versions of the server, of the library and of Python.",
        ("version", "library", "python"),
        registry=registry,
    )
    build.labels(__version__, version("vecmill"), platform.python_version()).set(1)


class _ModelMetrics:
    """The metrics that have a label for the model."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, ("model", *labels), registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, text, ("model",), buckets=buckets, registry=registry)

        self.admitted_tokens = counter("vecmill_tokens_admitted", "Tokens that entered the queue.")
        self.tokens = counter("vecmill_tokens", "Computed tokens, without padding.")
        self.computed_tokens = counter("vecmill_computed_tokens", "Computed tokens, padding included.")
        self.rejections = counter("vecmill_rejections", "Requests refused before admission.", "reason")
        self.truncated_texts = counter(
            "vecmill_texts_truncated", "Answered texts that were longer than their limit, and were cut."
        )
        self.waits = histogram(
            "vecmill_queue_wait_seconds", "Time of a text from admission to its engine call.", _SECONDS
        )
        self.batch_texts = histogram("vecmill_batch_texts", "Texts in an engine call.", _COUNTS)
        self.batch_tokens = histogram("vecmill_batch_tokens", "Tokens in an engine call.", _COUNTS)
        self.padding = histogram(
            "vecmill_batch_padding_share", "Fraction of padding among the tokens of an engine call.", _SHARES
        )
        self.inference = histogram("vecmill_inference_seconds", "Time of an engine call.", _SECONDS)
        self.lanes = Gauge(
            "vecmill_lane_state",
            "1 for the current state of the lane, 0 for other states.",
            ("model", "lane", "state"),
            registry=registry,
        )


class ModelObserver(Observer):
    """An observer of one model that updates its metrics. Called from the event loop and from lanes."""

    def __init__(self, metrics: _ModelMetrics, model: str, on_batch: OnBatch | None = None) -> None:
        self.needs_timelines = on_batch is not None
        self._on_batch = on_batch
        self._model = model
        self._admitted_tokens = metrics.admitted_tokens.labels(model)
        self._tokens = metrics.tokens.labels(model)
        self._computed_tokens = metrics.computed_tokens.labels(model)
        self._rejections = {reason: metrics.rejections.labels(model, reason) for reason in Rejection}
        self._truncated_texts = metrics.truncated_texts.labels(model)
        self._waits = metrics.waits.labels(model)
        self._batch_texts = metrics.batch_texts.labels(model)
        self._batch_tokens = metrics.batch_tokens.labels(model)
        self._padding = metrics.padding.labels(model)
        self._inference = metrics.inference.labels(model)
        self._lanes = metrics.lanes
        self._lane_children: dict[int, dict[LaneState, Gauge]] = {}

    def admitted(self, texts: int, tokens: int) -> None:
        self._admitted_tokens.inc(tokens)

    def rejected(self, reason: Rejection) -> None:
        self._rejections[reason].inc()

    def truncated(self, texts: int) -> None:
        self._truncated_texts.inc(texts)

    def batch_done(self, record: BatchRecord) -> None:
        self._tokens.inc(record.tokens)
        self._computed_tokens.inc(record.computed_tokens)
        self._batch_texts.observe(record.texts)
        self._batch_tokens.observe(record.tokens)
        if record.computed_tokens:
            self._padding.observe(max(0.0, 1 - record.tokens / record.computed_tokens))
        if record.timeline is None:
            self._inference.observe(record.inference_s)
            for wait_s in record.waits_s:
                self._waits.observe(wait_s)
            return
        exemplars = [exemplar_of(run) for run in record.timeline.of_texts]
        self._inference.observe(record.inference_s, next(filter(None, exemplars), None))
        for wait_s, exemplar in zip(record.waits_s, exemplars, strict=True):
            self._waits.observe(wait_s, exemplar)
        if self._on_batch is not None:
            self._on_batch(self._model, record.timeline)

    def lane(self, lane: int, state: LaneState) -> None:
        children = self._lane_children.get(lane)
        if children is None:
            children = {each: self._lanes.labels(self._model, lane, each) for each in LaneState}
            self._lane_children[lane] = children
        for each, child in children.items():
            child.set(each is state)


class _QueueCollector(Collector):
    """A collector that reads the queue of every model at each scrape, instead of counting events.

    The counts of one model come from one snapshot, so at every scrape the admitted texts are the sum of the
    finished and the open texts. Counters that follow events one after the other would differ by the texts
    that are between two events.
    """

    def __init__(self) -> None:
        self.mills: dict[str, Mill] = {}
        self.is_ready: dict[str, Callable[[], bool]] = {}

    def collect(self) -> Iterable[Metric]:
        admitted = CounterMetricFamily(
            "vecmill_texts_admitted", "Texts that entered the queue.", labels=("model",)
        )
        finished = CounterMetricFamily(
            "vecmill_texts_finished", "Admitted texts, by outcome.", labels=("model", "outcome")
        )
        joined = CounterMetricFamily(
            "vecmill_texts_joined", "Texts that joined an identical text's computation.", labels=("model",)
        )
        open_texts = GaugeMetricFamily(
            "vecmill_texts_open", "Admitted texts that wait or are computed.", labels=("model",)
        )
        texts = GaugeMetricFamily("vecmill_queue_texts", "Waiting texts.", labels=("model",))
        tokens = GaugeMetricFamily("vecmill_queue_tokens", "Waiting tokens.", labels=("model",))
        seconds = GaugeMetricFamily(
            "vecmill_queue_seconds",
            "Estimated time to compute the waiting texts, from measured speed.",
            labels=("model",),
        )
        for model, mill in self.mills.items():
            counts = mill.text_counts
            admitted.add_metric((model,), counts.admitted)
            for outcome in Outcome:
                finished.add_metric((model, outcome), getattr(counts, outcome))
            joined.add_metric((model,), counts.joined)
            open_texts.add_metric((model,), counts.open)
            texts.add_metric((model,), counts.waiting)
            tokens.add_metric((model,), counts.waiting_tokens)
            seconds.add_metric((model,), mill.backlog.seconds)
        ready = GaugeMetricFamily(
            "vecmill_model_ready", "1 if the model is loaded and has all of its workers.", labels=("model",)
        )
        for model, is_ready in self.is_ready.items():
            ready.add_metric((model,), is_ready())
        served = self._describe_models()
        return (admitted, finished, joined, open_texts, texts, tokens, seconds, ready, served)

    def _describe_models(self) -> Metric:
        served = GaugeMetricFamily(
            "vecmill_model_info",
            "Always 1. The labels have the task of a loaded model, and its engine, precision and device.",
            labels=("model", "task", "engine", "precision", "device"),
        )
        for model, mill in self.mills.items():
            with suppress(NotReady):
                info, task = mill.info, mill.description.task
                served.add_metric((model, task, info.name, info.precision, info.device), 1)
        return served


class _LogCollector(Collector):
    """A collector of the number of dropped log lines."""

    def __init__(self) -> None:
        self.dropped: Callable[[], int] = int  # 0

    def collect(self) -> Iterable[Metric]:
        text = "Log lines that were dropped because standard error was not read fast enough."
        yield CounterMetricFamily("vecmill_log_lines_dropped", text, value=self.dropped())
