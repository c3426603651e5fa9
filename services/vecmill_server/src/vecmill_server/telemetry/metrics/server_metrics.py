"""The registry of the metrics, and the counters of HTTP requests, API keys, batches and models."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import Metric

from vecmill.mill import Mill
from vecmill.values.observer import BatchRecord, BatchTimeline, LaneState, Observer, Rejection
from vecmill_server.base.byte_budget import ByteBudget
from vecmill_server.base.error_responses import REASONS
from vecmill_server.telemetry.metrics import definitions
from vecmill_server.telemetry.metrics.state_collectors import (
    GpuCollector,
    KeyModel,
    KeyUse,
    LogCollector,
    QueueCollector,
    Use,
    add_process_metrics,
    key_families,
)
from vecmill_server.telemetry.tracing.trace import exemplar_of

# The labels of an exemplar, which links a measured value to a trace.
Exemplar = dict[str, str]
# The tiers of the embedding cache.
MEMORY, DISK = "memory", "disk"
# Takes the name of a model and the timeline of a batch.
OnBatch = Callable[[str, BatchTimeline], None]


class CacheMetrics:
    """The metrics of the embedding cache."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.hits = definitions.RESULT_HITS.create(registry)
        self.misses = definitions.RESULT_MISSES.create(registry)
        self.size = definitions.RESULT_BYTES.create(registry)
        self.drops = definitions.RESULT_DROPS.create(registry)


class ModelMetrics:
    """The metrics that have a label for the model."""

    cache: CacheMetrics | None = None  # unless there is no embedding cache

    def __init__(self, registry: CollectorRegistry) -> None:
        self.admitted_tokens = definitions.TOKENS_ADMITTED.create(registry)
        self.tokens = definitions.TOKENS.create(registry)
        self.computed_tokens = definitions.COMPUTED_TOKENS.create(registry)
        self.rejections = definitions.REJECTIONS.create(registry)
        self.truncated_texts = definitions.TEXTS_TRUNCATED.create(registry)
        self.waits = definitions.QUEUE_WAITS.create(registry)
        self.batch_texts = definitions.BATCH_TEXTS.create(registry)
        self.batch_tokens = definitions.BATCH_TOKENS.create(registry)
        self.padding = definitions.BATCH_PADDING.create(registry)
        self.inference = definitions.INFERENCE.create(registry)
        self.lanes = definitions.LANE_STATE.create(registry)


class ModelObserver(Observer):
    """An observer of one model that updates its metrics. Called from the event loop and from lanes."""

    def __init__(self, metrics: ModelMetrics, model: str, on_batch: OnBatch | None = None) -> None:
        self.needs_timelines = on_batch is not None
        self._on_batch = on_batch
        self._model = model
        self._admitted_tokens = metrics.admitted_tokens.labels(model)
        self._tokens = metrics.tokens.labels(model)
        self._computed_tokens = metrics.computed_tokens.labels(model)
        self._rejections = {reason: metrics.rejections.labels(model, reason) for reason in Rejection}
        self._truncated_texts = metrics.truncated_texts.labels(model)
        self._metrics = metrics
        self._waits = metrics.waits.labels(model)
        self._batch_texts = metrics.batch_texts.labels(model)
        self._batch_tokens = metrics.batch_tokens.labels(model)
        self._padding = metrics.padding.labels(model)
        self._inference = metrics.inference.labels(model)
        self.reports_lanes = True
        self._lanes = metrics.lanes
        self._lane_states: dict[int, LaneState] = {}

    def admitted(self, texts: int, tokens: int) -> None:
        self._admitted_tokens.inc(tokens)

    def rejected(self, reason: Rejection) -> None:
        self._rejections[reason].inc()

    def truncated(self, texts: int) -> None:
        self._truncated_texts.inc(texts)

    def cache_searched(self, in_memory: int, on_disk: int, missing: int) -> None:
        cache = self._metrics.cache
        assert cache is not None, "there is an embedding cache, but it is not watched"
        for place, texts in ((MEMORY, in_memory), (DISK, on_disk)):
            if texts:
                cache.hits.labels(self._model, place).inc(texts)
        if missing:
            cache.misses.labels(self._model).inc(missing)

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
        if not self.reports_lanes:  # a thread of a closed mill ends
            return
        is_new = lane not in self._lane_states
        self._lane_states[lane] = state
        if is_new:  # the gauges are read at each scrape
            for each in LaneState:
                self._lanes.labels(self._model, lane, each).set_function(partial(self._is_in, lane, each))

    def forget_lanes(self) -> None:
        """Report no lanes until `reports_lanes` is set, when the model is loaded again."""
        self.reports_lanes = False
        for lane in self._lane_states:
            for state in LaneState:
                self._lanes.remove(self._model, lane, state)
        self._lane_states = {}

    def _is_in(self, lane: int, state: LaneState) -> bool:
        return self._lane_states.get(lane) is state


class LoadMetrics:
    """The metrics of one model that is loaded and dropped. Its texts are counted on from mill to mill."""

    def __init__(self, model: str, observer: ModelObserver, queues: QueueCollector, loads: Counter) -> None:
        self._model = model
        self._observer = observer
        self._queues = queues
        self._loaded = loads.labels(model, "loaded")
        self._failed = loads.labels(model, "failed")

    def load_began(self) -> None:
        """Report the lanes of the model from now on."""
        self._observer.reports_lanes = True

    def loaded(self) -> None:
        """Count a load."""
        self._loaded.inc()

    def load_failed(self) -> None:
        """Count a load that failed."""
        self._failed.inc()

    def dropped(self, mill: Mill) -> None:
        """Keep the counts of a mill that was closed, and report its lanes no more."""
        self._queues.keep_counts(self._model, mill)
        self._observer.forget_lanes()


@dataclass(frozen=True, slots=True)
class MetricsCopy:
    """All counts as they were at one moment, and the collectors that read the process and its machine.

    The copy is made on the event loop, in 1 to 2 ms with one model. The values of the process and its machine
    are read from the operating system, which takes longer.

    `key_use` is `None` without API keys. `gpus` is `None` if no model runs on an NVIDIA GPU.
    """

    counts: tuple[Metric, ...]
    key_use: Mapping[KeyModel, Use] | None
    machine: CollectorRegistry
    gpus: GpuCollector | None

    def families(self) -> list[Metric]:
        """Return all metrics. Reads files of the operating system and the GPUs, so call it in a thread."""
        if self.gpus is not None:
            self.gpus.read()
        of_keys = () if self.key_use is None else key_families(self.key_use)
        return [*self.counts, *of_keys, *self.machine.collect()]


# The status, in metrics and logs only, of a request whose client disconnected before the response.
CLIENT_GONE_STATUS = 499


class ServerMetrics:
    """The counters of HTTP requests and batches, an observer for each model, and the copy of all counts.

    `registry` has what is copied on the event loop, except the use by key. `queues.models` are the models
    whose queues and states are read at each scrape.
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
        self.queues = QueueCollector()
        self.registry.register(self.queues)
        self._log_lines = LogCollector()
        self.registry.register(self._log_lines)
        self._gpus = GpuCollector(self.queues.devices)
        self._machine = CollectorRegistry()  # reading it may take long, so it is read in a thread
        add_process_metrics(self._machine)
        self._machine.register(self._gpus)
        self._key_use: KeyUse | None = None
        self._loads: Counter | None = None  # unless models are loaded on demand
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

    def work_done(self, owner: str, model: str, *, texts: int, tokens: int) -> None:
        """Count complete work for the key of `owner`."""
        if self._key_use is not None:
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

    def observe_loads(self, model: str, observer: ModelObserver) -> LoadMetrics:
        """Return the metrics of the loads of a model. The first call adds the counter of loads."""
        if self._loads is None:
            self._loads = definitions.MODEL_LOADS.create(self.registry)
        return LoadMetrics(model, observer, self.queues, self._loads)

    def watch_log(self, dropped: Callable[[], int]) -> None:
        """Report the number of dropped log lines, read at each scrape."""
        self._log_lines.dropped = dropped

    def watch_budget(self, budget: ByteBudget) -> None:
        """Report the bytes that `budget` holds, read at each scrape, and its limit."""
        definitions.BUFFERED_BYTES.create(self.registry).set_function(lambda: budget.held)
        definitions.BUFFERED_BYTES_LIMIT.create(self.registry).set(budget.limit)

    def watch_cache(self) -> Callable[[str], None]:
        """Count what the embedding cache finds. Returns what counts a fault, by its reason."""
        cache = self._model_metrics.cache = CacheMetrics(self.registry)
        return lambda reason: cache.drops.labels(reason).inc()

    def watch_cache_sizes(self, **sizes: Callable[[], int]) -> None:
        """Report the size of the embedding cache in each place, read at each scrape."""
        cache = self._model_metrics.cache
        assert cache is not None, "watch_cache() comes first"
        for place, read in sizes.items():
            cache.size.labels(place).set_function(read)

    def copy(self) -> MetricsCopy:
        """Copy all counts in one step. Call on the event loop, so that no request is counted meanwhile."""
        return MetricsCopy(
            tuple(self.registry.collect()),
            None if self._key_use is None else self._key_use.copy(),
            self._machine,
            self._gpus if self._gpus.is_needed else None,
        )
