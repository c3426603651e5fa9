"""The panels of the Grafana board, by row: what they ask Prometheus and what they tell.

`$job`, `$instance` and `$model` are variables of the board. `board` builds the JSON from these declarations.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from pages.alert_rules import (
    ANSWERED_OBJECTIVE,
    COMPUTING,
    FAST,
    IN_TIME_OBJECTIVE,
    IN_TIME_S,
    LEAST_REQUESTS,
    SLOW,
)

# The labels that every query selects.
_ON = 'job=~"$job", instance=~"$instance"'
_MODEL = f'{_ON}, model=~"$model"'
_ASKED = f'{_ON}, route=~"{COMPUTING}"'
# The routes of probes, of scrapers and of the server's own pages, which nobody asks for work.
OWN_ROUTES = (
    *("alert", "alerts", "console_asset", "console_history", "console_models", "console_page"),
    *("console_state", "docs", "docs_asset", "health", "livez", "metrics", "openapi", "readyz"),
)
_OF_CLIENTS = f'{_ON}, route!~"{"|".join(OWN_ROUTES)}"'


class Unit(StrEnum):
    """Units, by Grafana's names for them."""

    SECONDS = "s"
    BYTES = "bytes"
    SHARE = "percentunit"
    COUNT = "short"
    EACH_SECOND = "cps"
    REQUESTS_EACH_SECOND = "reqps"


class Look(StrEnum):
    """How a panel shows its series, by Grafana's names."""

    LINES = "timeseries"
    STACK = "stack"
    STATES = "state-timeline"
    TABLE = "table"


@dataclass(frozen=True)
class Query:
    """An expression of PromQL, and the text for each of its series."""

    expression: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """One panel. `description` tells a reader who does not know the server what the figures mean."""

    title: str
    description: str
    unit: Unit
    queries: tuple[Query, ...]
    look: Look = Look.LINES


def _rate(name: str, labels: str = _MODEL) -> str:
    return f"rate({name}{{{labels}}}[$__rate_interval])"


def _mean(name: str) -> Query:
    sums, counts = _rate(f"{name}_sum"), _rate(f"{name}_count")
    return Query(f"sum by (model) ({sums}) / sum by (model) ({counts})", "{{model}}")


def _quantile(share: float, name: str, labels: str, by: str = "") -> str:
    grouping = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, sum by ({grouping}) ({_rate(f'{name}_bucket', labels)}))"


_DURATIONS = "vecmill_http_request_duration_seconds"

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
                f"sum by (instance, model) (avg without (process) (vecmill_queue_seconds{{{_MODEL}}}))",
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
                f'sum by (instance, model) (vecmill_lane_state{{{_MODEL}, state="busy"}})'
                f" / sum by (instance, model) (vecmill_lane_state{{{_MODEL}}})",
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
                f"sum by (instance) (vecmill_buffered_bytes{{{_ON}}})"
                f" / sum by (instance) (vecmill_buffered_bytes_limit{{{_ON}}})",
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
                f"sum by (instance) ({_rate('vecmill_queue_wait_seconds_sum')})"
                f" / sum by (instance) ({_rate('vecmill_queue_wait_seconds_count')})",
                "all models on {{instance}}, mean",
            ),
            Query(_quantile(0.5, "vecmill_queue_wait_seconds", _MODEL, "model"), "{{model}}, median"),
            Query(_quantile(0.99, "vecmill_queue_wait_seconds", _MODEL, "model"), "{{model}}, p99"),
        ),
    ),
    Panel(
        "Texts in the server",
        "Texts that wait, and texts in engine calls.",
        Unit.COUNT,
        (
            Query(f"sum by (model) (vecmill_queue_texts{{{_MODEL}}})", "{{model}}, waiting"),
            Query(f"sum by (model) (vecmill_texts_running{{{_MODEL}}})", "{{model}}, running"),
        ),
    ),
    Panel(
        "Refused requests",
        "Requests that were refused before admission. queue_full and too_late: the load is above the "
        "capacity. too_large: the request has more texts or tokens than the queue can hold.",
        Unit.REQUESTS_EACH_SECOND,
        (Query(f"sum by (model, reason) ({_rate('vecmill_rejections_total')})", "{{model}}, {{reason}}"),),
    ),
)

_TRAFFIC = (
    Panel(
        "Requests by route",
        "Answered requests of clients, by the name of the route. none: no route matched. Probes, scrapes and "
        "the server's own pages are left out.",
        Unit.REQUESTS_EACH_SECOND,
        (Query(f"sum by (route) ({_rate('vecmill_http_requests_total', _OF_CLIENTS)})", "{{route}}"),),
        Look.STACK,
    ),
    Panel(
        "Requests by status",
        "Answered requests of clients, by status. 499: the client disconnected before the response.",
        Unit.REQUESTS_EACH_SECOND,
        (Query(f"sum by (status) ({_rate('vecmill_http_requests_total', _OF_CLIENTS)})", "{{status}}"),),
        Look.STACK,
    ),
    Panel(
        "Texts",
        "Texts that got their result.",
        Unit.EACH_SECOND,
        (
            Query(
                "sum by (model) "
                f'(rate(vecmill_texts_finished_total{{{_MODEL}, outcome="done"}}[$__rate_interval]))',
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
            Query(f"sum by (model) ({_rate('vecmill_tokens_admitted_total')})", "{{model}}, admitted"),
            Query(f"sum by (model) ({_rate('vecmill_tokens_total')})", "{{model}}, computed"),
        ),
    ),
    Panel(
        "Joined and truncated texts",
        "Texts that shared the computation of an identical text, and texts that were cut at their limit.",
        Unit.EACH_SECOND,
        (
            Query(f"sum by (model) ({_rate('vecmill_texts_joined_total')})", "{{model}}, joined"),
            Query(f"sum by (model) ({_rate('vecmill_texts_truncated_total')})", "{{model}}, truncated"),
        ),
    ),
)

_CACHE = (
    Panel(
        "Texts in the embedding cache",
        "Texts whose embedding was kept, by the place where it was found, and texts that were computed.",
        Unit.EACH_SECOND,
        (
            Query(
                f"sum by (model, place) ({_rate('vecmill_result_cache_hits_total')})", "{{model}}, {{place}}"
            ),
            Query(f"sum by (model) ({_rate('vecmill_result_cache_misses_total')})", "{{model}}, computed"),
        ),
    ),
    Panel(
        "Size of the embedding cache",
        "Processes that share a folder each report the size of its file.",
        Unit.BYTES,
        (
            Query(
                f"max by (instance, place) (vecmill_result_cache_bytes{{{_ON}}})", "{{instance}}, {{place}}"
            ),
        ),
    ),
    Panel(
        "Results that were not kept on disk",
        "By reason: the disk is full, fails or is too slow, or a record or the file was damaged.",
        Unit.EACH_SECOND,
        (Query(f"sum by (reason) ({_rate('vecmill_result_cache_drops_total', _ON)})", "{{reason}}"),),
    ),
)

_LATENCIES = (
    Panel(
        "Time of requests",
        "Time from the request headers to the end of the response, of requests that use a model.",
        Unit.SECONDS,
        tuple(
            Query(_quantile(share, _DURATIONS, _ASKED), legend)
            for share, legend in ((0.5, "median"), (0.9, "p90"), (0.99, "p99"))
        ),
    ),
    Panel(
        "Time of requests by route, p99",
        "99% of the requests of a route take at most this time.",
        Unit.SECONDS,
        (Query(_quantile(0.99, _DURATIONS, _ASKED, "route"), "{{route}}"),),
    ),
    Panel(
        "Time of engine calls",
        "Time of one call of the engine, which computes a batch of texts.",
        Unit.SECONDS,
        (
            Query(_quantile(0.5, "vecmill_inference_seconds", _MODEL, "model"), "{{model}}, median"),
            Query(_quantile(0.99, "vecmill_inference_seconds", _MODEL, "model"), "{{model}}, p99"),
        ),
    ),
)

_BATCHES = (
    Panel(
        "Texts in a call",
        "The mean number of texts in an engine call.",
        Unit.COUNT,
        (_mean("vecmill_batch_texts"),),
    ),
    Panel(
        "Tokens in a call",
        "The mean number of tokens in an engine call.",
        Unit.COUNT,
        (_mean("vecmill_batch_tokens"),),
    ),
    Panel(
        "Padding",
        "The fraction of padding among the computed tokens.",
        Unit.SHARE,
        (
            Query(
                f"1 - sum by (model) ({_rate('vecmill_tokens_total')})"
                f" / sum by (model) ({_rate('vecmill_computed_tokens_total')})",
                "{{model}}",
            ),
            Query(
                _quantile(0.9, "vecmill_batch_padding_share", _MODEL, "model"),
                "{{model}}, p90 of engine calls",
            ),
        ),
    ),
)

# The panel of on-demand loading, which has data with a memory budget only.
LOADS = "Loads of models"

_MODELS = (
    Panel(
        "Ready models",
        "1 while the model is loaded and has all of its lanes, or will be loaded at its next request.",
        Unit.COUNT,
        (Query(f"min by (instance, model) (vecmill_model_ready{{{_MODEL}}})", "{{model}} on {{instance}}"),),
        Look.STATES,
    ),
    Panel(
        "Models by state",
        "Models in each state. not_loaded: it is loaded at its next request (--memory-budget-mib).",
        Unit.COUNT,
        (Query(f"sum by (state) (vecmill_model_state{{{_MODEL}}})", "{{state}}"),),
        Look.STACK,
    ),
    Panel(
        "Lanes by state",
        "Lanes, the worker threads of a model. hung: an engine call takes far longer than predicted. dead: "
        "the thread ended.",
        Unit.COUNT,
        (Query(f"sum by (model, state) (vecmill_lane_state{{{_MODEL}}})", "{{model}}, {{state}}"),),
        Look.STACK,
    ),
    Panel(
        "Served models",
        "The loaded models, with their engine, precision and device.",
        Unit.COUNT,
        (
            Query(
                f"max by (instance, model, task, engine, precision, device) (vecmill_model_info{{{_MODEL}}})",
                "",
            ),
        ),
        Look.TABLE,
    ),
)

_ON_DEMAND = (
    Panel(
        LOADS,
        "On-demand loads of models, in a second, by outcome. Many loads of few models mean that the "
        "memory budget is too small for them.",
        Unit.EACH_SECOND,
        (Query(f"sum by (model, outcome) ({_rate('vecmill_model_loads_total')})", "{{model}}, {{outcome}}"),),
    ),
)

_ERRORS = (
    Panel(
        "Errors by reason",
        "Error responses, by reason.",
        Unit.REQUESTS_EACH_SECOND,
        (Query(f"sum by (reason) ({_rate('vecmill_http_errors_total', _ON)})", "{{reason}}"),),
        Look.STACK,
    ),
    Panel(
        "Texts without a result",
        "Admitted texts that failed in the engine, passed their deadline, or whose client disconnected.",
        Unit.EACH_SECOND,
        (
            Query(
                "sum by (model, outcome) (rate(vecmill_texts_finished_total"
                f'{{{_MODEL}, outcome=~"failed|expired|cancelled"}}[$__rate_interval]))',
                "{{model}}, {{outcome}}",
            ),
        ),
    ),
    Panel(
        "Fields that the server does not know",
        "Fields of requests that have no effect, by route.",
        Unit.EACH_SECOND,
        (Query(f"sum by (route) ({_rate('vecmill_unknown_fields_total', _ON)})", "{{route}}"),),
    ),
    Panel(
        "Unknown model names",
        "Requests with an unknown model name that --alias '*' served.",
        Unit.REQUESTS_EACH_SECOND,
        (
            Query(
                f"sum by (instance) ({_rate('vecmill_unknown_model_names_total', _ON)})"
                f" or 0 * max by (instance) (vecmill_build_info{{{_ON}}})",  # without the option
                "{{instance}}",
            ),
        ),
    ),
)

_BATCH_API = (
    Panel(
        "Lines of batches",
        "Requests of OpenAI's Batch API that ended, by outcome. dropped: the batch was cancelled, expired, "
        "or reached a limit on stored bytes.",
        Unit.EACH_SECOND,
        (Query(f"sum by (outcome) ({_rate('vecmill_batch_api_lines_total', _ON)})", "{{outcome}}"),),
    ),
    Panel(
        "Ended batches",
        "Batches that ended in the shown time, by status.",
        Unit.COUNT,
        (
            Query(
                f"sum by (status) (increase(vecmill_batch_api_batches_total{{{_ON}}}[$__range]))",
                "{{status}}",
            ),
        ),
        Look.TABLE,
    ),
)

_KEYS = (
    Panel(
        "Tokens by key",
        "Tokens of complete work, by the owner of the API key. Keys of --api-key have no name.",
        Unit.EACH_SECOND,
        (Query(f"sum by (key) ({_rate('vecmill_key_tokens_total')})", "{{key}}"),),
        Look.STACK,
    ),
    Panel(
        "Texts by key",
        "Texts of complete work, by the owner of the API key.",
        Unit.EACH_SECOND,
        (Query(f"sum by (key) ({_rate('vecmill_key_texts_total')})", "{{key}}"),),
        Look.STACK,
    ),
    Panel(
        "Tokens by key and model in the shown time",
        "For bills: the increase over the time range of the board.",
        Unit.COUNT,
        (Query(f"sum by (key, model) (increase(vecmill_key_tokens_total{{{_MODEL}}}[$__range]))", ""),),
        Look.TABLE,
    ),
)

_PROCESS = (
    Panel(
        "Memory",
        "Memory of the server's processes, where shared pages count in each; memory in use in the container "
        "and its limit, or of the machine if the container has no limit.",
        Unit.BYTES,
        (
            Query(f"sum by (instance) (process_resident_memory_bytes{{{_ON}}})", "{{instance}}, processes"),
            Query(f"max by (instance) (vecmill_memory_used_bytes{{{_ON}}})", "{{instance}}, in use"),
            Query(f"max by (instance) (vecmill_memory_limit_bytes{{{_ON}}})", "{{instance}}, limit"),
        ),
    ),
    Panel(
        "Processor cores",
        "Cores that the server's processes keep busy.",
        Unit.COUNT,
        (Query(f"sum by (instance) ({_rate('process_cpu_seconds_total', _ON)})", "{{instance}}"),),
    ),
    Panel(
        "File descriptors",
        "Open file descriptors and their limit. Each connection needs one.",
        Unit.COUNT,
        (
            Query(f"sum by (instance) (process_open_fds{{{_ON}}})", "{{instance}}, open"),
            Query(f"sum by (instance) (process_max_fds{{{_ON}}})", "{{instance}}, limit"),
        ),
    ),
    Panel(
        "Time since the start",
        "Of the oldest process. A fall to 0 is a restart.",
        Unit.SECONDS,
        (Query(f"max by (instance) (time() - process_start_time_seconds{{{_ON}}})", "{{instance}}"),),
    ),
    Panel(
        "Dropped log lines",
        "Log lines that were dropped because standard error was not read fast enough.",
        Unit.EACH_SECOND,
        (Query(f"sum by (instance) ({_rate('vecmill_log_lines_dropped_total', _ON)})", "{{instance}}"),),
    ),
    Panel(
        "Processes",
        "Processes of the server. While one is missing, its figures are missing in every total.",
        Unit.COUNT,
        (Query(f"sum by (instance, state) (vecmill_processes{{{_ON}}})", "{{instance}}, {{state}}"),),
    ),
    Panel(
        "Versions",
        "The versions of the server, of the library and of Python.",
        Unit.COUNT,
        (Query(f"max by (instance, version, library, python) (vecmill_build_info{{{_ON}}})", ""),),
        Look.TABLE,
    ),
)

_GPUS = (
    Panel(
        "GPU memory",
        "Memory in use on the GPU by all processes, as a fraction of its memory.",
        Unit.SHARE,
        (
            Query(
                f"vecmill_gpu_memory_used_bytes{{{_ON}}} / vecmill_gpu_memory_total_bytes{{{_ON}}}",
                "{{instance}}, GPU {{gpu}}",
            ),
        ),
    ),
    Panel(
        "GPU use",
        "The fraction of the time in which the GPU runs a kernel.",
        Unit.SHARE,
        (Query(f"vecmill_gpu_busy_ratio{{{_ON}}}", "{{instance}}, GPU {{gpu}}"),),
    ),
)

GPUS = "GPUs (NVIDIA)"
KEYS = "Use by key"
CACHE, BATCH_API, ON_DEMAND = "Embedding cache", "Batches of requests", "Models loaded on demand"


def _share_failed(window: str) -> str:
    failed = f'vecmill_http_requests_total{{{_ASKED}, status=~"5.."}}'
    asked = f"vecmill_http_requests_total{{{_ASKED}}}"
    return f"(sum(rate({failed}[{window}])) or vector(0)) / sum(rate({asked}[{window}]))"


def _share_late(window: str) -> str:
    in_time = f'{_DURATIONS}_bucket{{{_ASKED}, le="{IN_TIME_S}"}}'
    return f"1 - sum(rate({in_time}[{window}])) / sum(rate({_DURATIONS}_count{{{_ASKED}}}[{window}]))"


def _burn(title: str, share: Callable[[str], str], objective: float, what: str) -> tuple[Panel, Panel]:
    """The two panels of an objective: how fast its allowance is used now, and how much of it is left."""
    allowed = f"{1 - objective:.6g}"
    rates = (Query(f"({share(burn.long)}) / {allowed}", f"last {burn.long}") for burn in (FAST, SLOW))
    bounds = (Query(f"vector({burn.rate:g})", f"alert of {burn.long}") for burn in (FAST, SLOW))
    return (
        Panel(
            f"{title}: use of the allowance",
            f"The objective is {objective:.1%} of the requests that use a model, in 30 days, {what}. 1 uses "
            f"the allowance up in 30 days. Alerts fire above the two bounds, from {LEAST_REQUESTS} such "
            "requests on.",
            Unit.COUNT,
            (*rates, *bounds),
        ),
        Panel(
            f"{title}: allowance left of 30 days",
            f"100%: every request was answered {what}. 0: as many were not as the objective allows, or more.",
            Unit.SHARE,
            (Query(f"clamp_min(1 - ({share('30d')}) / {allowed}, 0)", "left"),),
        ),
    )


_OBJECTIVES = (
    *_burn("Answered", _share_failed, ANSWERED_OBJECTIVE, "without a status of 500 or above"),
    *_burn("In time", _share_late, IN_TIME_OBJECTIVE, f"within {IN_TIME_S:g} s"),
)

ROWS: Mapping[str, tuple[Panel, ...]] = MappingProxyType(
    {
        "What limits the server now": _LIMITS,
        "Objectives": _OBJECTIVES,
        "Traffic": _TRAFFIC,
        "Latency": _LATENCIES,
        "Engine calls": _BATCHES,
        "Models and lanes": _MODELS,
        "Errors": _ERRORS,
        "Process": _PROCESS,
        KEYS: _KEYS,
        CACHE: _CACHE,
        BATCH_API: _BATCH_API,
        ON_DEMAND: _ON_DEMAND,
        GPUS: _GPUS,
    }
)
# The rows whose series exist with an option or a device only.
COLLAPSED = frozenset({KEYS, CACHE, BATCH_API, ON_DEMAND, GPUS})
