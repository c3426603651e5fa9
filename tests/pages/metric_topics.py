"""The metrics by topic, as docs/metrics.md lists them: when they exist, and the values of their labels."""

from collections.abc import Iterator, Mapping

from vecmill.values.observer import LaneState, Rejection
from vecmill_server.base.error_responses import REASONS
from vecmill_server.batches.objects import BatchStatus
from vecmill_server.catalog.catalog import ModelState
from vecmill_server.service.embedding_cache.disk_tier import Drop
from vecmill_server.telemetry.metrics.definitions import (
    BATCH_LINES,
    BATCH_PADDING,
    BATCH_TEXTS,
    BATCH_TOKENS,
    BATCHES_ENDED,
    BUFFERED_BYTES,
    BUFFERED_BYTES_LIMIT,
    BUILD_INFO,
    COMPUTED_TOKENS,
    DURATIONS,
    ERRORS,
    GPU_BUSY,
    GPU_MEMORY_TOTAL,
    GPU_MEMORY_USED,
    INFERENCE,
    KEY_TEXTS,
    KEY_TOKENS,
    LANE_STATE,
    LOG_LINES_DROPPED,
    MEMORY_LIMIT,
    MEMORY_USED,
    MODEL_INFO,
    MODEL_LOADS,
    MODEL_READY,
    MODEL_STATE,
    PROCESSES,
    QUEUE_SECONDS,
    QUEUE_TEXTS,
    QUEUE_TOKENS,
    QUEUE_WAITS,
    REJECTIONS,
    REQUESTS,
    RESULT_BYTES,
    RESULT_DROPS,
    RESULT_HITS,
    RESULT_MISSES,
    TEXTS_ADMITTED,
    TEXTS_FINISHED,
    TEXTS_JOINED,
    TEXTS_OPEN,
    TEXTS_RUNNING,
    TEXTS_TRUNCATED,
    TOKENS,
    TOKENS_ADMITTED,
    UNKNOWN_FIELDS,
    UNKNOWN_MODEL_NAMES,
    CounterDefinition,
    Definition,
    GaugeDefinition,
    HistogramDefinition,
    Outcome,
    ProcessState,
)
from vecmill_server.telemetry.metrics.server_metrics import DISK, MEMORY

# Exposed by prometheus_client.
PROCESS = (
    GaugeDefinition("process_resident_memory_bytes", "Memory of the process."),
    GaugeDefinition("process_virtual_memory_bytes", "Virtual memory of the process."),
    CounterDefinition("process_cpu_seconds", "Processor time of the process."),
    GaugeDefinition("process_open_fds", "Open file descriptors of the process."),
    GaugeDefinition("process_max_fds", "Most file descriptors of the process."),
    GaugeDefinition("process_start_time_seconds", "Start of the process, in Unix seconds."),
)

BY_TOPIC: Mapping[str, tuple[Definition, ...]] = {
    "What limits the server": (
        QUEUE_SECONDS,
        QUEUE_TEXTS,
        QUEUE_TOKENS,
        QUEUE_WAITS,
        TEXTS_RUNNING,
        TEXTS_OPEN,
        BUFFERED_BYTES,
        BUFFERED_BYTES_LIMIT,
    ),
    "Requests": (REQUESTS, DURATIONS, ERRORS, REJECTIONS, UNKNOWN_FIELDS, UNKNOWN_MODEL_NAMES),
    "Use by key": (KEY_TEXTS, KEY_TOKENS),
    "Texts and tokens": (
        TEXTS_ADMITTED,
        TEXTS_FINISHED,
        TEXTS_JOINED,
        TEXTS_TRUNCATED,
        TOKENS_ADMITTED,
        TOKENS,
        COMPUTED_TOKENS,
    ),
    "Embedding cache": (RESULT_HITS, RESULT_MISSES, RESULT_BYTES, RESULT_DROPS),
    "Engine calls": (BATCH_TEXTS, BATCH_TOKENS, BATCH_PADDING, INFERENCE),
    "Models and lanes": (MODEL_READY, MODEL_STATE, MODEL_LOADS, MODEL_INFO, LANE_STATE),
    "Batches of requests": (BATCH_LINES, BATCHES_ENDED),
    "The process and its machine": (
        MEMORY_USED,
        MEMORY_LIMIT,
        *PROCESS,
        LOG_LINES_DROPPED,
        PROCESSES,
        BUILD_INFO,
    ),
    "GPUs": (GPU_MEMORY_USED, GPU_MEMORY_TOTAL, GPU_BUSY),
}

_ON_LINUX = "on Linux"
_ON_CUDA = "with a model on an NVIDIA GPU, and the package nvidia-ml-py"
# When a metric exists that does not always exist.
CONDITIONS: Mapping[Definition, str] = {
    UNKNOWN_MODEL_NAMES: "with `--alias '*'`",
    **dict.fromkeys(
        (RESULT_HITS, RESULT_MISSES, RESULT_BYTES, RESULT_DROPS),
        "with `--result-cache-dir` or `--result-cache-memory-bytes`",
    ),
    MODEL_LOADS: "with `--memory-budget-mib`",
    **dict.fromkeys((KEY_TEXTS, KEY_TOKENS), "with API keys"),
    **dict.fromkeys((MEMORY_USED, MEMORY_LIMIT, *PROCESS), _ON_LINUX),
    **dict.fromkeys((GPU_MEMORY_USED, GPU_MEMORY_TOTAL, GPU_BUSY), _ON_CUDA),
}
# The values of labels that have a fixed set of them.
LABEL_VALUES: Mapping[Definition, Mapping[str, tuple[str, ...]]] = {
    ERRORS: {"reason": REASONS},
    REJECTIONS: {"reason": tuple(Rejection)},
    TEXTS_FINISHED: {"outcome": tuple(Outcome)},
    RESULT_HITS: {"place": (MEMORY, DISK)},
    RESULT_BYTES: {"place": (MEMORY, DISK)},
    RESULT_DROPS: {"reason": tuple(Drop)},
    LANE_STATE: {"state": tuple(LaneState)},
    MODEL_STATE: {"state": tuple(ModelState)},
    MODEL_LOADS: {"outcome": ("loaded", "failed")},
    BATCH_LINES: {"outcome": ("completed", "failed", "dropped")},
    BATCHES_ENDED: {"status": tuple(BatchStatus)},
    PROCESSES: {"state": tuple(ProcessState)},
}


def all_definitions() -> Iterator[Definition]:
    """The declarations of all metrics, by topic."""
    for definitions in BY_TOPIC.values():
        yield from definitions


def kind_of(definition: Definition) -> str:
    """The kind of a metric, as Prometheus names it."""
    return type(definition).__name__.removesuffix("Definition").lower()


def shown_name(definition: Definition) -> str:
    """The name that a reader of the metrics sees, without the suffixes of a histogram."""
    return f"{definition.name}_total" if isinstance(definition, CounterDefinition) else definition.name


def samples_of(definition: Definition) -> Mapping[str, tuple[str, ...]]:
    """The names of the exposed samples, with their labels."""
    if not isinstance(definition, HistogramDefinition):
        return {shown_name(definition): definition.labels}
    return {
        f"{definition.name}_bucket": (*definition.labels, "le"),
        f"{definition.name}_sum": definition.labels,
        f"{definition.name}_count": definition.labels,
    }
