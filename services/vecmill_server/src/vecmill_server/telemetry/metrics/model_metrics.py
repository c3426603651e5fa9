"""The metrics that have a label for the model, and the observer of a model that updates them."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Gauge

from vecmill.values.observer import BatchRecord, BatchTimeline, LaneState, Observer, Rejection
from vecmill_server.telemetry.metrics import definitions
from vecmill_server.telemetry.tracing.trace import exemplar_of

# The labels of an exemplar, which links a measured value to a trace.
Exemplar = dict[str, str]
# Takes the name of a model and the timeline of a batch.
OnBatch = Callable[[str, BatchTimeline], None]


class ModelMetrics:
    """The metrics that have a label for the model."""

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
