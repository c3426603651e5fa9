"""The panels of the Grafana board, by row: what they ask Prometheus and what they tell.

`board` builds the JSON from these declarations.
"""

from collections.abc import Mapping
from types import MappingProxyType

from pages.board_objectives import OBJECTIVES
from pages.board_option_panels import (
    BATCH_API_PANELS,
    CACHE_PANELS,
    GPU_PANELS,
    KEY_PANELS,
    ON_DEMAND_PANELS,
)
from pages.board_queries import (
    ASKED,
    DURATIONS,
    OF_CLIENTS,
    OF_MODEL,
    ON,
    Look,
    Panel,
    Query,
    Unit,
    mean,
    quantile,
    rate,
)

_LIMITS = (
    Panel(
        "Waiting work",
        "How long waiting texts take: the estimated time until all of them are computed, at the speed that "
        "is observed, and the parts of the models in it. Interactive requests are refused with 429 if they "
        "would wait longer than target_wait_s, 2 s by default. The sum is the figure for autoscaling and "
        "alerts.",
        Unit.SECONDS,
        (
            Query(
                f"sum by (instance, model) (avg without (process) (vecmill_queue_seconds{{{OF_MODEL}}}))",
                "{{model}} on {{instance}}",
            ),
        ),
        Look.STACK,
    ),
    Panel(
        "Busy lanes",
        "The fraction of the model's lanes, its worker threads, that run an engine call. Near 100%, the "
        "processor or the GPU is the limit.",
        Unit.SHARE,
        (
            Query(
                f'sum by (instance, model) (vecmill_lane_state{{{OF_MODEL}, state="busy"}})'
                f" / sum by (instance, model) (vecmill_lane_state{{{OF_MODEL}}})",
                "{{model}} on {{instance}}",
            ),
        ),
    ),
    Panel(
        "Buffered bytes",
        "Bytes of requests and responses that the server holds, as a fraction of --max-buffered-bytes. Large "
        "requests are refused above 75%.",
        Unit.SHARE,
        (
            Query(
                f"sum by (instance) (vecmill_buffered_bytes{{{ON}}})"
                f" / sum by (instance) (vecmill_buffered_bytes_limit{{{ON}}})",
                "{{instance}}",
            ),
        ),
    ),
    Panel(
        "Time in the queue",
        "Time of a text from admission to its engine call, as it was measured.",
        Unit.SECONDS,
        (
            Query(
                f"sum by (instance) ({rate('vecmill_queue_wait_seconds_sum')})"
                f" / sum by (instance) ({rate('vecmill_queue_wait_seconds_count')})",
                "all models on {{instance}}, mean",
            ),
            Query(quantile(0.5, "vecmill_queue_wait_seconds", OF_MODEL, "model"), "{{model}}, median"),
            Query(quantile(0.99, "vecmill_queue_wait_seconds", OF_MODEL, "model"), "{{model}}, p99"),
        ),
    ),
    Panel(
        "Texts in the server",
        "Texts that wait, and texts in engine calls.",
        Unit.COUNT,
        (
            Query(f"sum by (model) (vecmill_queue_texts{{{OF_MODEL}}})", "{{model}}, waiting"),
            Query(f"sum by (model) (vecmill_texts_running{{{OF_MODEL}}})", "{{model}}, running"),
        ),
    ),
    Panel(
        "Refused requests",
        "Requests that were refused before admission. queue_full and too_late: the load is above the "
        "capacity. too_large: the request has more texts or tokens than the queue can hold.",
        Unit.REQUESTS_EACH_SECOND,
        (Query(f"sum by (model, reason) ({rate('vecmill_rejections_total')})", "{{model}}, {{reason}}"),),
    ),
)

_TRAFFIC = (
    Panel(
        "Requests by route",
        "Answered requests of clients, by the name of the route. none: no route matched. Probes, scrapes and "
        "the server's own pages are left out.",
        Unit.REQUESTS_EACH_SECOND,
        (Query(f"sum by (route) ({rate('vecmill_http_requests_total', OF_CLIENTS)})", "{{route}}"),),
        Look.STACK,
    ),
    Panel(
        "Requests by status",
        "Answered requests of clients, by status. 499: the client disconnected before the response.",
        Unit.REQUESTS_EACH_SECOND,
        (Query(f"sum by (status) ({rate('vecmill_http_requests_total', OF_CLIENTS)})", "{{status}}"),),
        Look.STACK,
    ),
    Panel(
        "Texts",
        "Texts that got their result.",
        Unit.EACH_SECOND,
        (
            Query(
                "sum by (model) "
                f'(rate(vecmill_texts_finished_total{{{OF_MODEL}, outcome="done"}}[$__rate_interval]))',
                "{{model}}",
            ),
        ),
    ),
    Panel(
        "Tokens",
        "Tokens that entered the queue, and computed tokens without padding. Identical texts share one "
        "computation.",
        Unit.EACH_SECOND,
        (
            Query(f"sum by (model) ({rate('vecmill_tokens_admitted_total')})", "{{model}}, admitted"),
            Query(f"sum by (model) ({rate('vecmill_tokens_total')})", "{{model}}, computed"),
        ),
    ),
    Panel(
        "Joined and truncated texts",
        "Texts that shared the computation of an identical text, and texts that were cut at their limit.",
        Unit.EACH_SECOND,
        (
            Query(f"sum by (model) ({rate('vecmill_texts_joined_total')})", "{{model}}, joined"),
            Query(f"sum by (model) ({rate('vecmill_texts_truncated_total')})", "{{model}}, truncated"),
        ),
    ),
)

_LATENCIES = (
    Panel(
        "Time of requests",
        "Time from the request headers to the end of the response, of requests that use a model.",
        Unit.SECONDS,
        tuple(
            Query(quantile(share, DURATIONS, ASKED), legend)
            for share, legend in ((0.5, "median"), (0.9, "p90"), (0.99, "p99"))
        ),
    ),
    Panel(
        "Time of requests by route, p99",
        "99% of the requests of a route take at most this time.",
        Unit.SECONDS,
        (Query(quantile(0.99, DURATIONS, ASKED, "route"), "{{route}}"),),
    ),
    Panel(
        "Time of engine calls",
        "Time of one call of the engine, which computes a batch of texts.",
        Unit.SECONDS,
        (
            Query(quantile(0.5, "vecmill_inference_seconds", OF_MODEL, "model"), "{{model}}, median"),
            Query(quantile(0.99, "vecmill_inference_seconds", OF_MODEL, "model"), "{{model}}, p99"),
        ),
    ),
)

_BATCHES = (
    Panel(
        "Texts in a call",
        "The mean number of texts in an engine call.",
        Unit.COUNT,
        (mean("vecmill_batch_texts"),),
    ),
    Panel(
        "Tokens in a call",
        "The mean number of tokens in an engine call.",
        Unit.COUNT,
        (mean("vecmill_batch_tokens"),),
    ),
    Panel(
        "Padding",
        "The fraction of padding among the computed tokens.",
        Unit.SHARE,
        (
            Query(
                f"1 - sum by (model) ({rate('vecmill_tokens_total')})"
                f" / sum by (model) ({rate('vecmill_computed_tokens_total')})",
                "{{model}}",
            ),
            Query(
                quantile(0.9, "vecmill_batch_padding_share", OF_MODEL, "model"),
                "{{model}}, p90 of engine calls",
            ),
        ),
    ),
)

_MODELS = (
    Panel(
        "Ready models",
        "1 while the model is loaded and has all of its lanes, or will be loaded at its next request.",
        Unit.COUNT,
        (
            Query(
                f"min by (instance, model) (vecmill_model_ready{{{OF_MODEL}}})", "{{model}} on {{instance}}"
            ),
        ),
        Look.STATES,
    ),
    Panel(
        "Models by state",
        "Models in each state. not_loaded: it is loaded at its next request (--memory-budget-mib).",
        Unit.COUNT,
        (Query(f"sum by (state) (vecmill_model_state{{{OF_MODEL}}})", "{{state}}"),),
        Look.STACK,
    ),
    Panel(
        "Lanes by state",
        "Lanes, the worker threads of a model. hung: an engine call takes far longer than predicted. dead: "
        "the thread ended.",
        Unit.COUNT,
        (Query(f"sum by (model, state) (vecmill_lane_state{{{OF_MODEL}}})", "{{model}}, {{state}}"),),
        Look.STACK,
    ),
    Panel(
        "Served models",
        "The loaded models, with their engine, precision and device.",
        Unit.COUNT,
        (
            Query(
                "max by (instance, model, task, engine, precision, device) "
                f"(vecmill_model_info{{{OF_MODEL}}})",
                "",
            ),
        ),
        Look.TABLE,
    ),
)

_ERRORS = (
    Panel(
        "Errors by reason",
        "Error responses, by reason.",
        Unit.REQUESTS_EACH_SECOND,
        (Query(f"sum by (reason) ({rate('vecmill_http_errors_total', ON)})", "{{reason}}"),),
        Look.STACK,
    ),
    Panel(
        "Texts without a result",
        "Admitted texts that failed in the engine, passed their deadline, or whose client disconnected.",
        Unit.EACH_SECOND,
        (
            Query(
                "sum by (model, outcome) (rate(vecmill_texts_finished_total"
                f'{{{OF_MODEL}, outcome=~"failed|expired|cancelled"}}[$__rate_interval]))',
                "{{model}}, {{outcome}}",
            ),
        ),
    ),
    Panel(
        "Fields that the server does not know",
        "Fields of requests that have no effect, by route.",
        Unit.EACH_SECOND,
        (Query(f"sum by (route) ({rate('vecmill_unknown_fields_total', ON)})", "{{route}}"),),
    ),
    Panel(
        "Unknown model names",
        "Requests with an unknown model name that --alias '*' served.",
        Unit.REQUESTS_EACH_SECOND,
        (
            Query(
                f"sum by (instance) ({rate('vecmill_unknown_model_names_total', ON)})"
                f" or 0 * max by (instance) (vecmill_build_info{{{ON}}})",  # without the option
                "{{instance}}",
            ),
        ),
    ),
)

_PROCESS = (
    Panel(
        "Memory",
        "Memory of the server's processes, where shared pages count in each; memory in use in the container "
        "and its limit, or of the machine if the container has no limit.",
        Unit.BYTES,
        (
            Query(f"sum by (instance) (process_resident_memory_bytes{{{ON}}})", "{{instance}}, processes"),
            Query(f"max by (instance) (vecmill_memory_used_bytes{{{ON}}})", "{{instance}}, in use"),
            Query(f"max by (instance) (vecmill_memory_limit_bytes{{{ON}}})", "{{instance}}, limit"),
        ),
    ),
    Panel(
        "Processor cores",
        "Cores that the server's processes keep busy.",
        Unit.COUNT,
        (Query(f"sum by (instance) ({rate('process_cpu_seconds_total', ON)})", "{{instance}}"),),
    ),
    Panel(
        "File descriptors",
        "Open file descriptors and their limit. Each connection needs one.",
        Unit.COUNT,
        (
            Query(f"sum by (instance) (process_open_fds{{{ON}}})", "{{instance}}, open"),
            Query(f"sum by (instance) (process_max_fds{{{ON}}})", "{{instance}}, limit"),
        ),
    ),
    Panel(
        "Time since the start",
        "Of the oldest process. A fall to 0 is a restart.",
        Unit.SECONDS,
        (Query(f"max by (instance) (time() - process_start_time_seconds{{{ON}}})", "{{instance}}"),),
    ),
    Panel(
        "Dropped log lines",
        "Log lines that were dropped because standard error was not read fast enough.",
        Unit.EACH_SECOND,
        (Query(f"sum by (instance) ({rate('vecmill_log_lines_dropped_total', ON)})", "{{instance}}"),),
    ),
    Panel(
        "Processes",
        "Processes of the server. While one is missing, its figures are missing in every total.",
        Unit.COUNT,
        (Query(f"sum by (instance, state) (vecmill_processes{{{ON}}})", "{{instance}}, {{state}}"),),
    ),
    Panel(
        "Versions",
        "The versions of the server, of the library and of Python.",
        Unit.COUNT,
        (Query(f"max by (instance, version, library, python) (vecmill_build_info{{{ON}}})", ""),),
        Look.TABLE,
    ),
)

GPUS = "GPUs (NVIDIA)"
KEYS = "Use by key"
CACHE, BATCH_API, ON_DEMAND = "Embedding cache", "Batches of requests", "Models loaded on demand"

ROWS: Mapping[str, tuple[Panel, ...]] = MappingProxyType(
    {
        "What limits the server now": _LIMITS,
        "Objectives": OBJECTIVES,
        "Traffic": _TRAFFIC,
        "Latency": _LATENCIES,
        "Engine calls": _BATCHES,
        "Models and lanes": _MODELS,
        "Errors": _ERRORS,
        "Process": _PROCESS,
        KEYS: KEY_PANELS,
        CACHE: CACHE_PANELS,
        BATCH_API: BATCH_API_PANELS,
        ON_DEMAND: ON_DEMAND_PANELS,
        GPUS: GPU_PANELS,
    }
)
# The rows whose series exist with an option or a device only.
COLLAPSED = frozenset({KEYS, CACHE, BATCH_API, ON_DEMAND, GPUS})
