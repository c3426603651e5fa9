"""The panels of the Grafana board for the two objectives, from which the burn-rate alerts are made."""

from collections.abc import Callable

from pages.alert_rules import ANSWERED_OBJECTIVE, FAST, IN_TIME_OBJECTIVE, IN_TIME_S, LEAST_REQUESTS, SLOW
from pages.board_queries import ASKED, DURATIONS, Panel, Query, Unit


def _share_failed(window: str) -> str:
    failed = f'vecmill_http_requests_total{{{ASKED}, status=~"5.."}}'
    asked = f"vecmill_http_requests_total{{{ASKED}}}"
    return f"(sum(rate({failed}[{window}])) or vector(0)) / sum(rate({asked}[{window}]))"


def _share_late(window: str) -> str:
    in_time = f'{DURATIONS}_bucket{{{ASKED}, le="{IN_TIME_S}"}}'
    return f"1 - sum(rate({in_time}[{window}])) / sum(rate({DURATIONS}_count{{{ASKED}}}[{window}]))"


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


OBJECTIVES = (
    *_burn("Answered", _share_failed, ANSWERED_OBJECTIVE, "without a status of 500 or above"),
    *_burn("In time", _share_late, IN_TIME_OBJECTIVE, f"within {IN_TIME_S:g} s"),
)
