"""The registry of the metrics, and the counters of HTTP requests, API keys and batches."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Histogram

from vecmill.mill import Mill
from vecmill_server.base.byte_budget import ByteBudget
from vecmill_server.base.error_responses import REASONS
from vecmill_server.telemetry.metrics import definitions
from vecmill_server.telemetry.metrics.gpus import GpuCollector
from vecmill_server.telemetry.metrics.key_use import KeyUse
from vecmill_server.telemetry.metrics.metrics_page import MetricsCopy
from vecmill_server.telemetry.metrics.model_metrics import Exemplar, ModelMetrics, ModelObserver, OnBatch
from vecmill_server.telemetry.metrics.process_metrics import add_process_metrics
from vecmill_server.telemetry.metrics.state_collectors import LogCollector, QueueCollector

# The status, in metrics and logs only, of a request whose client disconnected before the response.
CLIENT_GONE_STATUS = 499


class ServerMetrics:
    """The counters of HTTP requests and batches, an observer for each model, and the copy of all counts.

    `registry` has what is copied on the event loop, except the use by key.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = definitions.REQUESTS.create(self.registry)
        self._durations = definitions.DURATIONS.create(self.registry)
        self._errors = definitions.ERRORS.create(self.registry)
        for reason in REASONS:
            self._errors.labels(reason)
        self._unknown_fields = definitions.UNKNOWN_FIELDS.create(self.registry)
        self._batch_lines = definitions.BATCH_LINES.create(self.registry)
        self._batches_ended = definitions.BATCHES_ENDED.create(self.registry)
        self._model_metrics = ModelMetrics(self.registry)
        self._queues = QueueCollector()
        self.registry.register(self._queues)
        self._log_lines = LogCollector()
        self.registry.register(self._log_lines)
        self._gpus = GpuCollector(self._queues.devices)
        self._machine = CollectorRegistry()  # reading it may take long, so it is read in a thread
        add_process_metrics(self._machine)
        self._machine.register(self._gpus)
        self._key_use: KeyUse | None = None
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

    def watch_keys(self) -> None:
        """Count the texts and tokens of each owner of API keys from now on."""
        self._key_use = KeyUse()

    def work_done(self, owner: str | None, model: str, *, texts: int, tokens: int) -> None:
        """Count complete work for a key. `owner` is `None` if the request needed no key."""
        if self._key_use is not None and owner is not None:
            self._key_use.add(owner, model, texts, tokens)

    def count_unknown_names(self) -> Callable[[], None]:
        """Add the counter of requests with unknown model names, and return its increment."""
        return definitions.UNKNOWN_MODEL_NAMES.create(self.registry).inc

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

    def observe_model(self, model: str, on_batch: OnBatch | None = None) -> ModelObserver:
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
        """Report the bytes that `budget` holds, read at each scrape, and its limit."""
        definitions.BUFFERED_BYTES.create(self.registry).set_function(lambda: budget.held)
        definitions.BUFFERED_BYTES_LIMIT.create(self.registry).set(budget.limit)

    def copy(self) -> MetricsCopy:
        """Copy all counts in one step. Call on the event loop, so that no request is counted meanwhile."""
        return MetricsCopy(
            tuple(self.registry.collect()),
            None if self._key_use is None else self._key_use.copy(),
            self._machine,
            self._gpus if self._gpus.is_needed else None,
        )
