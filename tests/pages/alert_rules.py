"""The alerts, from which `make monitoring` writes the rules of Prometheus and their page in the docs.

Rates aggregate away the labels of the server's metrics (`without`), so labels that Prometheus adds to a
target, such as the pod and the namespace, stay on the alert.
"""

import json
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import yaml

from vecmill_server.dialects.dialect_routes import ROUTES

HEADER = "# Written by `make monitoring` from tests/pages/alert_rules.py. Do not edit.\n"
PAGE = "docs/metrics.md"
# The address of the server that an alert is about, as Prometheus scrapes it.
SCHEME = "http://"
SERVER = f"{SCHEME}{{{{ $labels.instance }}}}"
DOCS_WIDTH = 140


class Severity(StrEnum):
    """Whether a person has to act now."""

    CRITICAL = "critical"
    WARNING = "warning"


@dataclass(frozen=True)
class Alert:
    """An alert fires when `expression` has had a result for the time `lasting`.

    `summary` tells what is wrong, and may name labels. `condition` tells when the alert fires, and `action`
    what to do. `has_server` tells whether the alert is about a server that answers, whose page it links to.
    """

    name: str
    severity: Severity
    expression: str
    lasting: str
    summary: str
    condition: str
    action: str
    has_server: bool = True

    @property
    def runbook(self) -> str:
        """The address of the alert's page, which every server has. Another server has it too."""
        page = f"/alerts/{self.name}"
        if self.has_server:
            return f"{SERVER}{page}"
        # Prometheus writes this for each alert: of a server that answers, or of the last that answered.
        return (
            '{{ with query "vecmill_build_info or last_over_time(vecmill_build_info[7d])" }}'
            f'{SCHEME}{{{{ . | first | label "instance" }}}}{page}{{{{ end }}}}'
        )


_INSTANCE = "{{ $labels.instance }}"
_MODEL = "{{ $labels.model }}"
_PERCENT = "{{ $value | humanizePercentage }}"

# The routes that run a model. Probes would change the shares of answers.
COMPUTING = "|".join(
    sorted({route.name for route in ROUTES if any(body.needs_engine for body in route.bodies)})
)
_ASKED = f'vecmill_http_requests_total{{route=~"{COMPUTING}"}}'


# So many requests must have failed, been late or been refused in the window of an alert. A single one of the
# three requests of an hour is no reason to wake somebody.
LEAST_REQUESTS = 10


def _sum_of(counter: str, function: str, window: str) -> str:
    """The sum over the labels of the server, with several processes too."""
    return f"sum without (route, status, process) ({function}({counter}[{window}]))"


def _share_above(status: str, bound: float, window: str) -> str:
    """More than this share of the answers has this status, a regular expression, and enough of them do."""
    counted = f'vecmill_http_requests_total{{route=~"{COMPUTING}", status=~"{status}"}}'
    share = f"{_sum_of(counted, 'rate', window)} / {_sum_of(_ASKED, 'rate', window)}"
    return f"{share} > {bound:.6g} and {_sum_of(counted, 'increase', window)} >= {LEAST_REQUESTS}"


# How long waiting texts take: the sum over the models of a process, of which several work side by side.
QUEUE_TIME = "sum without (model) (avg without (process) (vecmill_queue_seconds))"

_DOWN = "up == 0 and on (job, instance) last_over_time(vecmill_build_info[1d])"
_LOST_LANE = 'max without (lane, state) (vecmill_lane_state{state=~"hung|dead"}) == 1'

# The objectives, over 30 days: shares of the requests that use a model.
ANSWERED_OBJECTIVE = 0.999
IN_TIME_OBJECTIVE, IN_TIME_S = 0.99, 1.0


_DURATIONS = "vecmill_http_request_duration_seconds"
_ALL = f'{_DURATIONS}_count{{route=~"{COMPUTING}"}}'
_FAILED = f'vecmill_http_requests_total{{route=~"{COMPUTING}", status=~"5.."}}'
_IN_TIME = f'{_DURATIONS}_bucket{{route=~"{COMPUTING}", le="{IN_TIME_S}"}}'


def share_failed(window: str) -> str:
    """The share of the requests that failed."""
    return f"{_sum_of(_FAILED, 'rate', window)} / {_sum_of(_ASKED, 'rate', window)}"


def share_late(window: str) -> str:
    """The share of the requests that took longer than the objective allows."""
    in_time = f"sum without (route, le, process) (rate({_IN_TIME}[{window}]))"
    return f"1 - {in_time} / sum without (route, process) (rate({_ALL}[{window}]))"


def _failed(window: str) -> str:
    return _sum_of(_FAILED, "increase", window)


def _late(window: str) -> str:
    in_time = f"sum without (route, le, process) (increase({_IN_TIME}[{window}]))"
    return f"sum without (route, process) (increase({_ALL}[{window}])) - {in_time}"


@dataclass(frozen=True)
class Burn:
    """A rate at which the errors that an objective allows are used up, in a long and a short window.

    1 uses up the allowance of 30 days in 30 days. The short window ends the alert soon after the fault.
    Source: Google, "The Site Reliability Workbook", chapter 5.
    """

    rate: float
    long: str
    short: str

    def expression(self, share: Callable[[str], str], count: Callable[[str], str], objective: float) -> str:
        """Return the condition that both windows burn at least at this rate, with enough bad requests."""
        bound = f"{self.rate * (1 - objective):.6g}"
        enough = f"({count(self.long)} >= {LEAST_REQUESTS})"
        return f"({share(self.long)} > {bound}) and ({share(self.short)} > {bound}) and {enough}"


# 14.4 uses up 2% of the allowance of 30 days in an hour, and 6 uses up 5% in six hours.
FAST, SLOW = Burn(14.4, "1h", "5m"), Burn(6.0, "6h", "30m")


def _burn_alerts() -> Iterator[Alert]:
    kinds = (
        (
            "Failed",
            share_failed,
            _failed,
            ANSWERED_OBJECTIVE,
            "fail with a status of 500 or above",
            "The row Errors of the board has the reasons: see VecmillErrors.",
        ),
        (
            "Late",
            share_late,
            _late,
            IN_TIME_OBJECTIVE,
            f"take more than {IN_TIME_S:g} s",
            "Compare the time in the queue with the time of engine calls on the board: see VecmillSlow. Bulk "
            "requests count too; if they are meant to take longer, set the objective of this rule to yours.",
        ),
    )
    for burn, word, severity in ((FAST, "Fast", Severity.CRITICAL), (SLOW, "Slowly", Severity.WARNING)):
        for kind, share, count, objective, what, action in kinds:
            yield Alert(
                f"Vecmill{kind}Requests{word}",
                severity,
                burn.expression(share, count, objective),
                "0m",
                f"{_PERCENT} of the requests to {_INSTANCE} {what}.",
                f"{burn.rate:g} times as many requests that use a model {what} as the objective allows, in "
                f"the last {burn.long} and in the last {burn.short}, and at least {LEAST_REQUESTS} of them "
                f"did. The objective is {objective:.1%} of the requests in 30 days.",
                action,
            )


ALERTS = (
    Alert(
        "VecmillDown",
        Severity.CRITICAL,
        _DOWN,
        "1m",
        f"The vecmill server {_INSTANCE} does not answer.",
        "Prometheus has failed to scrape a server for 1 minute, which it has scraped in the last day.",
        "Look whether the process runs, and read the end of its log. Exit status 70 means that the watchdog "
        "ended it. If the process runs, look at the network between Prometheus and the server, and at "
        "`--metrics-key`.",
        has_server=False,
    ),
    Alert(
        "VecmillAbsent",
        Severity.CRITICAL,
        f"absent(last_over_time(vecmill_build_info[10m])) unless on () ({_DOWN})",
        "5m",
        "No vecmill server is scraped.",
        "Prometheus has scraped no vecmill server for 15 minutes, and knows none that is down.",
        "Look whether a server is deployed, and whether the scrape configuration or the ServiceMonitor finds "
        "it. `/targets` of Prometheus lists what it finds.",
        has_server=False,
    ),
    Alert(
        "VecmillModelNotReady",
        Severity.CRITICAL,
        f"vecmill_model_ready == 0 unless on (job, instance, model) ({_LOST_LANE})",
        "10m",
        f"The model {_MODEL} on {_INSTANCE} is not ready.",
        "A model has not been ready for 10 minutes, and none of its lanes is lost.",
        "Read the reason on `/readyz` and the details in the log: the files are missing or damaged, an "
        "option does not fit the model, or a download is slow. If the model needs longer to load, raise the "
        "time of the alert.",
    ),
    Alert(
        "VecmillLaneLost",
        Severity.CRITICAL,
        _LOST_LANE,
        "1m",
        f"A worker of the model {_MODEL} on {_INSTANCE} hangs or died.",
        "A lane has hung or been dead for 1 minute. The other lanes of the model answer with less capacity.",
        "Read the log: it has the engine call that hangs, or the error of the lane that died. A lane that "
        "hung comes back when its call returns. If lanes are lost again and again, restart the server and "
        "report the model, the engine and the device. If every lane is lost, the server restarts by itself.",
    ),
    Alert(
        "VecmillErrors",
        Severity.CRITICAL,
        _share_above("5..", 0.05, "5m"),
        "5m",
        f"{_PERCENT} of the requests to {_INSTANCE} fail.",
        "More than 5% of the requests that use a model, and at least 10 in 5 minutes, have had a status of "
        "500 or above for 5 minutes.",
        "The row Errors of the board has the reasons. `inference_failed` and `non_finite_output` come from "
        "the engine, `tokenization_failed` from the tokenizer: the log has the exception. "
        "`deadline_exceeded` means that clients wait longer than they allow: see VecmillQueueLong.",
    ),
    Alert(
        "VecmillRefusals",
        Severity.WARNING,
        _share_above("429", 0.1, "5m"),
        "10m",
        f"{_INSTANCE} refuses {_PERCENT} of the requests.",
        "More than 10% of the requests that use a model, and at least 10 in 5 minutes, have been refused "
        "with status 429 for 10 minutes.",
        "The load is above the capacity. Add replicas or cores, or let clients send less. Clients should "
        "follow `Retry-After`. The row Use by key of the board shows who sends most.",
    ),
    Alert(
        "VecmillQueueLong",
        Severity.WARNING,
        f"{QUEUE_TIME} > 1",
        "5m",
        f"Texts on {_INSTANCE} wait {{{{ $value | humanizeDuration }}}} for the engine.",
        "The texts that wait for the models of a server have needed more than 1 s for 5 minutes.",
        "Add replicas, or let the autoscaler follow the sum of `vecmill_queue_seconds`, as the chart does. "
        "The view Watch and the board show which model has how much of it. If the queue grows with the usual "
        "traffic, compare the time of engine calls and the padding with earlier days.",
    ),
    Alert(
        "VecmillSlow",
        Severity.WARNING,
        "histogram_quantile(0.99, sum without (route, process) (rate("
        f'{_DURATIONS}_bucket{{route=~"{COMPUTING}"}}[5m]))) > 2.5'
        f" and sum without (route, process) (increase({_ALL}[15m])) >= {LEAST_REQUESTS}",
        "10m",
        f"1% of the requests to {_INSTANCE} take {{{{ $value | humanizeDuration }}}} or longer.",
        "The 99th percentile of the time of requests that use a model, of at least 10 in 15 minutes, has "
        "been above 2.5 s for 10 minutes.",
        "Compare the time in the queue with the time of engine calls on the board. A long queue: add "
        "capacity. Slow engine calls: look for long texts, other processes on the cores, or a "
        "limit on processor time.",
    ),
    Alert(
        "VecmillMemory",
        Severity.WARNING,
        "max without (process) (vecmill_memory_used_bytes)"
        " / max without (process) (vecmill_memory_limit_bytes) > 0.9",
        "5m",
        f"{_INSTANCE} uses {_PERCENT} of the memory.",
        "More than 90% of the container's memory limit, or of the machine's memory, has been in use for 5 "
        "minutes. The system ends a process that reaches the limit.",
        "Raise the limit, or lower what the server may hold: `--max-buffered-bytes`, `--max-batch-tokens`, "
        "the number of models.",
    ),
    Alert(
        "VecmillDescriptors",
        Severity.WARNING,
        "process_open_fds / process_max_fds > 0.8 and on (job, instance) vecmill_build_info",
        "5m",
        f"{_INSTANCE} uses {_PERCENT} of its file descriptors.",
        "More than 80% of the file descriptors of the process have been open for 5 minutes.",
        "Each connection is a descriptor. Raise the limit (`LimitNOFILE` of systemd, `ulimits` of compose), "
        "or lower `--max-connections` and `--keep-alive-s`.",
    ),
    Alert(
        "VecmillRestarts",
        Severity.WARNING,
        "changes(process_start_time_seconds[1h]) >= 2 and on (job, instance) vecmill_build_info",
        "0m",
        f"{_INSTANCE} has restarted {{{{ $value }}}} times in an hour.",
        "A server has started at least twice in the last hour, after the start that Prometheus knew.",
        "Read the end of the log before each start. Exit status 70 is the watchdog, whose log lines have the "
        "stacks of all threads. Exit status 137 is the system, which ends processes at the memory limit.",
    ),
    Alert(
        "VecmillLogLinesDropped",
        Severity.WARNING,
        "increase(vecmill_log_lines_dropped_total[15m]) > 0",
        "0m",
        f"{_INSTANCE} has dropped log lines.",
        "The server has dropped log lines in the last 15 minutes, since nobody read its standard error.",
        "Look at the log collector: it stands still or is too slow. `--no-access-log` makes the log smaller.",
    ),
    Alert(
        "VecmillBatchLinesFailing",
        Severity.WARNING,
        'sum without (outcome) (increase(vecmill_batch_api_lines_total{outcome="failed"}[30m]))'
        " / sum without (outcome) (increase(vecmill_batch_api_lines_total[30m])) > 0.1",
        "5m",
        f"{_PERCENT} of the batch lines on {_INSTANCE} fail.",
        "More than 10% of the lines of batches that ended in the last 30 minutes have an error.",
        "Read the error file of a batch: it has the error of each line. Errors of a client, such as texts "
        "that are too long, are for the owner of the batch. Errors of the engine are in the log.",
    ),
    Alert(
        "VecmillProcessMissing",
        Severity.WARNING,
        'sum without (process, state) (vecmill_processes{state="missing"}) > 0',
        "2m",
        f"{{{{ $value }}}} processes of {_INSTANCE} do not answer.",
        "A process of a server with `--processes` has not answered for the page of metrics for 2 minutes. "
        "Its series are missing, so totals and rates are too low.",
        "Look whether the process is stopped or swapped out: `ps -o pid,stat,comm`. The supervisor replaces "
        "a process that gives no sign of life, except while a debugger is attached.",
    ),
    *_burn_alerts(),
)


def write_rules() -> str:
    """The rules file of Prometheus."""
    rules = [_rule(alert) for alert in ALERTS]
    document = {"groups": [{"name": "vecmill", "rules": rules}]}
    return HEADER + str(yaml.safe_dump(document, sort_keys=False, width=1000, allow_unicode=True))


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.lasting,
        "labels": {"severity": str(alert.severity)},
        "annotations": {
            "summary": alert.summary,
            "description": f"{alert.condition} {alert.action}",
            "runbook_url": alert.runbook,
        },
    }


def list_alerts() -> str:
    """The section of the docs: each alert, when it fires and what to do."""
    parts = []
    for alert in ALERTS:
        condition = f"{alert.condition} Severity: {alert.severity}."
        parts += [f"### {alert.name}\n", _wrap(condition), _wrap(alert.action)]
    return "\n".join(parts)


def write_pages() -> str:
    """The alerts as the server's own pages show them: a list in JSON."""
    listed = [
        {
            "name": alert.name,
            "severity": str(alert.severity),
            "condition": alert.condition,
            "action": alert.action,
            "expression": alert.expression,
            "lasting": alert.lasting,
        }
        for alert in ALERTS
    ]
    return json.dumps(listed, indent=1) + "\n"


def _wrap(text: str) -> str:
    return textwrap.fill(text, DOCS_WIDTH, break_on_hyphens=False) + "\n"
