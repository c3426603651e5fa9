"""The declarations of all metrics: name, help text and labels."""

from dataclasses import dataclass
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily


class ProcessState(StrEnum):
    """Whether a process of the server answered for a page of metrics."""

    ANSWERING = "answering"
    MISSING = "missing"


class Outcome(StrEnum):
    """The outcome of an admitted text."""

    DONE = "done"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


# Near each other, since percentiles are interpolated between them. Up to a minute, since a request of many
# thousand texts may take that long.
_SECONDS = (
    *(0.001, 0.0015, 0.0025, 0.0035, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.035, 0.05, 0.075),
    *(0.1, 0.15, 0.25, 0.35, 0.5, 0.75, 1.0, 1.5, 2.5, 3.5, 5.0, 7.5),
    *(10.0, 15.0, 20.0, 30.0, 45.0, 60.0),
)
_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
_SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75)

NO_ROUTE = "none"


@dataclass(frozen=True)
class Definition:
    """The declaration of one metric."""

    name: str
    text: str
    labels: tuple[str, ...] = ()


class CounterDefinition(Definition):
    """The declaration of a counter. Its samples have the suffix `_total`."""

    def create(self, registry: CollectorRegistry) -> Counter:
        """Return a new counter in `registry`."""
        return Counter(self.name, self.text, self.labels, registry=registry)

    def family(self) -> CounterMetricFamily:
        """Return an empty family, for a collector."""
        return CounterMetricFamily(self.name, self.text, labels=self.labels)


class GaugeDefinition(Definition):
    """The declaration of a gauge."""

    def create(self, registry: CollectorRegistry) -> Gauge:
        """Return a new gauge in `registry`."""
        return Gauge(self.name, self.text, self.labels, registry=registry)

    def family(self) -> GaugeMetricFamily:
        """Return an empty family, for a collector."""
        return GaugeMetricFamily(self.name, self.text, labels=self.labels)


@dataclass(frozen=True)
class HistogramDefinition(Definition):
    """The declaration of a histogram with these upper bounds of buckets."""

    buckets: tuple[float, ...] = _SECONDS

    def create(self, registry: CollectorRegistry) -> Histogram:
        """Return a new histogram in `registry`."""
        return Histogram(self.name, self.text, self.labels, buckets=self.buckets, registry=registry)


_OF_MODEL = ("model",)

# Requests.
REQUESTS = CounterDefinition(
    "vecmill_http_requests",
    "Answered requests. Status 499 means that the client disconnected before the response; route none means "
    "that no route matched.",
    ("route", "status"),
)
DURATIONS = HistogramDefinition(
    "vecmill_http_request_duration_seconds",
    "Time from the request headers to the end of the response.",
    ("route",),
)
ERRORS = CounterDefinition("vecmill_http_errors", "Error responses.", ("reason",))
REJECTIONS = CounterDefinition(
    "vecmill_rejections",
    "Requests refused before admission.",
    ("model", "reason"),
)
UNKNOWN_FIELDS = CounterDefinition(
    "vecmill_unknown_fields",
    "Fields of requests that the server does not know. Lines of batches have the route batches.",
    ("route",),
)
UNKNOWN_MODEL_NAMES = CounterDefinition(
    "vecmill_unknown_model_names",
    "Requests with an unknown model name that --alias '*' served.",
)

# The use by key.
KEY_TEXTS = CounterDefinition(
    "vecmill_key_texts",
    "Texts of answered requests and stored batch lines, by the owner of the API key.",
    ("key", "model"),
)
KEY_TOKENS = CounterDefinition(
    "vecmill_key_tokens",
    "Tokens of answered requests and stored batch lines, by the owner of the API key.",
    ("key", "model"),
)

# The embedding cache, whose metrics, like its options, are called result_cache.
RESULT_HITS = CounterDefinition(
    "vecmill_result_cache_hits",
    "Texts whose embedding was in the embedding cache, in memory or on disk.",
    ("model", "place"),
)
RESULT_MISSES = CounterDefinition(
    "vecmill_result_cache_misses", "Texts whose embedding was not in the embedding cache.", _OF_MODEL
)
RESULT_BYTES = GaugeDefinition(
    "vecmill_result_cache_bytes", "Size of the embedding cache, in memory or on disk.", ("place",)
)
RESULT_DROPS = CounterDefinition(
    "vecmill_result_cache_drops",
    "Embeddings that were not written to disk, and damaged ones that were found there, by reason. A damaged "
    "file counts once.",
    ("reason",),
)

# The queue, and what limits the server.
QUEUE_SECONDS = GaugeDefinition(
    "vecmill_queue_seconds",
    "The model's part of the estimated time until all waiting texts are computed, at the observed speed. The "
    "sum over the models is how long waiting texts take.",
    _OF_MODEL,
)
QUEUE_TEXTS = GaugeDefinition("vecmill_queue_texts", "Waiting texts.", _OF_MODEL)
QUEUE_TOKENS = GaugeDefinition("vecmill_queue_tokens", "Waiting tokens.", _OF_MODEL)
TEXTS_RUNNING = GaugeDefinition("vecmill_texts_running", "Texts in engine calls.", _OF_MODEL)
TEXTS_OPEN = GaugeDefinition("vecmill_texts_open", "Admitted texts that wait or are computed.", _OF_MODEL)
QUEUE_WAITS = HistogramDefinition(
    "vecmill_queue_wait_seconds", "Time of a text from admission to its engine call.", _OF_MODEL
)
BUFFERED_BYTES = GaugeDefinition(
    "vecmill_buffered_bytes", "Bytes of requests and responses that the server holds now."
)
BUFFERED_BYTES_LIMIT = GaugeDefinition(
    "vecmill_buffered_bytes_limit", "Most bytes of requests and responses that the server holds."
)

# Texts and tokens.
TEXTS_ADMITTED = CounterDefinition("vecmill_texts_admitted", "Texts that entered the queue.", _OF_MODEL)
TEXTS_FINISHED = CounterDefinition(
    "vecmill_texts_finished",
    "Admitted texts, by outcome.",
    ("model", "outcome"),
)
TEXTS_JOINED = CounterDefinition(
    "vecmill_texts_joined",
    "Texts that were deduplicated: they joined the computation of an identical text.",
    _OF_MODEL,
)
TEXTS_TRUNCATED = CounterDefinition(
    "vecmill_texts_truncated", "Answered texts that were longer than their limit, and were cut.", _OF_MODEL
)
TOKENS_ADMITTED = CounterDefinition("vecmill_tokens_admitted", "Tokens that entered the queue.", _OF_MODEL)
TOKENS = CounterDefinition("vecmill_tokens", "Computed tokens, without padding.", _OF_MODEL)
COMPUTED_TOKENS = CounterDefinition(
    "vecmill_computed_tokens", "Computed tokens, padding included.", _OF_MODEL
)

# Engine calls.
BATCH_TEXTS = HistogramDefinition(
    "vecmill_batch_texts", "Texts in an engine call.", _OF_MODEL, buckets=_COUNTS
)
BATCH_TOKENS = HistogramDefinition(
    "vecmill_batch_tokens", "Tokens in an engine call.", _OF_MODEL, buckets=_COUNTS
)
BATCH_PADDING = HistogramDefinition(
    "vecmill_batch_padding_share",
    "Fraction of padding among the tokens of an engine call.",
    _OF_MODEL,
    buckets=_SHARES,
)
INFERENCE = HistogramDefinition("vecmill_inference_seconds", "Time of an engine call.", _OF_MODEL)

# Models and lanes.
MODEL_READY = GaugeDefinition(
    "vecmill_model_ready",
    "1 if the model is loaded and has all of its workers, or will be loaded at its next request.",
    _OF_MODEL,
)
MODEL_STATE = GaugeDefinition(
    "vecmill_model_state",
    "1 for the current state of the model, 0 for other states.",
    ("model", "state"),
)
MODEL_LOADS = CounterDefinition(
    "vecmill_model_loads",
    "On-demand loads of a model, by outcome: loaded or failed.",
    ("model", "outcome"),
)
MODEL_INFO = GaugeDefinition(
    "vecmill_model_info",
    "Always 1. The labels have the task of a loaded model, and its engine, precision and device.",
    ("model", "task", "engine", "precision", "device"),
)
LANE_STATE = GaugeDefinition(
    "vecmill_lane_state",
    "1 for the current state of the lane, 0 for other states.",
    ("model", "lane", "state"),
)

# OpenAI's Batch API.
BATCH_LINES = CounterDefinition(
    "vecmill_batch_api_lines",
    "Ended requests of batches, by outcome.",
    ("outcome",),
)
BATCHES_ENDED = CounterDefinition(
    "vecmill_batch_api_batches",
    "Ended batches, by status.",
    ("status",),
)

# The process and its machine.
BUILD_INFO = GaugeDefinition(
    "vecmill_build_info",
    "Always 1. The labels have the versions of the server, of the library and of Python.",
    ("version", "library", "python"),
)
PROCESSES = GaugeDefinition(
    "vecmill_processes",
    "Processes of the server, by whether they answered for this page. The series of a missing process are "
    "not on the page, so totals are too low.",
    ("state",),
)
LOG_LINES_DROPPED = CounterDefinition(
    "vecmill_log_lines_dropped",
    "Log lines that were dropped because standard error was not read fast enough.",
)
MEMORY_USED = GaugeDefinition(
    "vecmill_memory_used_bytes",
    "Memory in use in the container, without cached files that can be freed; of the machine, if the "
    "container has no limit.",
)
MEMORY_LIMIT = GaugeDefinition(
    "vecmill_memory_limit_bytes",
    "Memory limit of the container; memory of the machine, if the container has no limit.",
)

# GPUs.
GPU_MEMORY_USED = GaugeDefinition(
    "vecmill_gpu_memory_used_bytes",
    "Memory in use on the GPU, by all processes.",
    ("gpu",),
)
GPU_MEMORY_TOTAL = GaugeDefinition("vecmill_gpu_memory_total_bytes", "Memory of the GPU.", ("gpu",))
GPU_BUSY = GaugeDefinition(
    "vecmill_gpu_busy_ratio",
    "Fraction of the last sample period in which the GPU ran a kernel, from 0 to 1.",
    ("gpu",),
)
