"""The metrics by topic, as docs/metrics.md lists them, and the names of their samples."""

from collections.abc import Iterator, Mapping

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
    MODEL_READY,
    ON_LINUX,
    QUEUE_SECONDS,
    QUEUE_TEXTS,
    QUEUE_TOKENS,
    QUEUE_WAITS,
    REJECTIONS,
    REQUESTS,
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
)

# Exposed by prometheus_client.
PROCESS = (
    GaugeDefinition("process_resident_memory_bytes", "Memory of the process.", condition=ON_LINUX),
    GaugeDefinition("process_virtual_memory_bytes", "Virtual memory of the process.", condition=ON_LINUX),
    CounterDefinition("process_cpu_seconds", "Processor time of the process.", condition=ON_LINUX),
    GaugeDefinition("process_open_fds", "Open file descriptors of the process.", condition=ON_LINUX),
    GaugeDefinition("process_max_fds", "Most file descriptors of the process.", condition=ON_LINUX),
    GaugeDefinition(
        "process_start_time_seconds", "Start of the process, in Unix seconds.", condition=ON_LINUX
    ),
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
    "Engine calls": (BATCH_TEXTS, BATCH_TOKENS, BATCH_PADDING, INFERENCE),
    "Models and lanes": (MODEL_READY, MODEL_INFO, LANE_STATE),
    "Batches of requests": (BATCH_LINES, BATCHES_ENDED),
    "The process and its machine": (
        MEMORY_USED,
        MEMORY_LIMIT,
        *PROCESS,
        LOG_LINES_DROPPED,
        BUILD_INFO,
    ),
    "GPUs": (GPU_MEMORY_USED, GPU_MEMORY_TOTAL, GPU_BUSY),
}


def all_definitions() -> Iterator[Definition]:
    """The declarations of all metrics, by topic."""
    for definitions in BY_TOPIC.values():
        yield from definitions


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
