"""Each alert fires on the fault that it is for, and no other alert does; on a healthy server none fires.

The rules are run by promtool over scrapes of live servers (`faults`).
"""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from monitoring.faults import (
    FAULTS,
    INSTANCE,
    INTERVAL_S,
    JOB,
    Recording,
    duration,
    record_health,
    replay,
)
from monitoring.promql import selectors
from pages.alert_rules import ALERTS
from pages.monitoring_files import RULES

NAMES = {selector.name for alert in ALERTS for selector in selectors(alert.expression)}
FIRED = 'group by (alertname) (last_over_time(ALERTS{alertstate="firing"}[1d]))'


# The objectives of availability and latency are missed by the faults of other alerts too.
ALSO = {
    "VecmillErrors": ("VecmillFailedRequestsFast", "VecmillFailedRequestsSlowly"),
    "VecmillSlow": ("VecmillLateRequestsFast", "VecmillLateRequestsSlowly"),
    "VecmillFailedRequestsFast": ("VecmillFailedRequestsSlowly",),
    "VecmillLateRequestsFast": ("VecmillLateRequestsSlowly",),
}


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("needs promtool, of Debian's package prometheus")
    return found


def test_there_is_a_fault_for_each_alert() -> None:
    assert set(FAULTS) == {alert.name for alert in ALERTS}


@pytest.mark.full
def test_promtool_accepts_the_rules(promtool: str) -> None:
    done = subprocess.run(
        [promtool, "check", "rules", str(RULES)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


@pytest.mark.promise("alerts-true")
@pytest.mark.full
@pytest.mark.parametrize("name", [alert.name for alert in ALERTS])
def test_an_alert_fires_on_its_fault_alone(promtool: str, name: str, tmp_path: Path) -> None:
    check(promtool, FAULTS[name](tmp_path), sorted({name, *ALSO.get(name, ())}), tmp_path)


@pytest.mark.promise("alerts-true")
@pytest.mark.full
def test_no_alert_fires_on_a_healthy_server(promtool: str, tmp_path: Path) -> None:
    check(promtool, record_health(tmp_path), [], tmp_path)


HOURS, SLOW_INTERVAL_S = 7, 120


@dataclass(frozen=True)
class Traffic:
    """Requests that come evenly: in an hour, and how many of them fail, are refused or are late."""

    hourly: int
    status: str = "500"
    bad: int = 0
    late: bool = False

    def series(self) -> dict[str, list[int]]:
        """The values of each series at each scrape."""
        steps, hour = range(HOURS * 3600 // SLOW_INTERVAL_S), 3600 // SLOW_INTERVAL_S
        target = f'job="{JOB}",instance="{INSTANCE}"'
        bad = [self.bad * step // hour for step in steps]
        good = [(self.hourly - self.bad) * step // hour for step in steps]
        every = [sum(pair) for pair in zip(good, bad, strict=True)]
        of_route = f'route="embeddings",{target}'
        durations = "vecmill_http_request_duration_seconds"
        in_time = good if self.late else every
        return {
            f"up{{{target}}}": [1] * len(every),
            f"vecmill_build_info{{{target}}}": [1] * len(every),
            f'vecmill_http_requests_total{{status="200",{of_route}}}': in_time if self.late else good,
            f'vecmill_http_requests_total{{status="{self.status}",{of_route}}}': bad,
            f'{durations}_bucket{{le="1.0",{of_route}}}': in_time,
            f'{durations}_bucket{{le="2.5",{of_route}}}': in_time,
            f'{durations}_bucket{{le="5.0",{of_route}}}': every,
            f'{durations}_bucket{{le="+Inf",{of_route}}}': every,
            f"{durations}_count{{{of_route}}}": every,
        }


FAILED = ["VecmillFailedRequestsFast", "VecmillFailedRequestsSlowly"]
LATE = ["VecmillLateRequestsFast", "VecmillLateRequestsSlowly"]


@pytest.mark.promise("alerts-true")
@pytest.mark.full
@pytest.mark.parametrize(
    ("traffic", "expected"),
    [
        # Nothing pages below the minimum of traffic.
        (Traffic(3, bad=1), []),
        (Traffic(9, bad=1), []),
        (Traffic(9, status="200", bad=1, late=True), []),
        (Traffic(3, status="429", bad=2), []),
        (Traffic(60, bad=1), []),
        # What paged rightly still does: few requests that all fail, and a small part of many.
        (Traffic(20, bad=20), FAILED),
        (Traffic(2_000, bad=40), FAILED),
        (Traffic(100_000, bad=1_600), FAILED),
        (Traffic(20_000, bad=2_000), ["VecmillErrors", *FAILED]),
        (Traffic(2_000, bad=16), ["VecmillFailedRequestsSlowly"]),
        (Traffic(2_000, bad=4), []),
        (Traffic(2_000, status="200", bad=400, late=True), ["VecmillSlow", *LATE]),
        (Traffic(2_000, status="429", bad=400), ["VecmillRefusals"]),
    ],
)
def test_requests_that_come_evenly(
    promtool: str, traffic: Traffic, expected: list[str], tmp_path: Path
) -> None:
    series = {name: [str(value) for value in values] for name, values in traffic.series().items()}
    check_series(promtool, series, f"{HOURS}h", sorted(expected), tmp_path, SLOW_INTERVAL_S)


@pytest.mark.full
@pytest.mark.parametrize("expected", [[], ["VecmillDown"], ["VecmillAbsent", "VecmillDown"]])
def test_other_alerts_than_expected_are_found(promtool: str, expected: list[str], tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="VecmillAbsent"):
        check(promtool, FAULTS["VecmillAbsent"](tmp_path), expected, tmp_path)


def test_an_alert_leads_to_the_page_of_a_server_that_answers(promtool: str, tmp_path: Path) -> None:
    """The server that is down has no page, and no instance is known of a server that nobody scrapes."""
    series = [
        {"series": 'up{job="vecmill",instance="a:7997"}', "values": "1x10 0x20"},
        {"series": 'vecmill_build_info{job="vecmill",instance="a:7997"}', "values": "1x10 stale"},
        {"series": 'up{job="vecmill",instance="b:7997"}', "values": "1x30"},
        {"series": 'vecmill_build_info{job="vecmill",instance="b:7997"}', "values": "1x30"},
        {"series": 'vecmill_queue_seconds{job="vecmill",instance="b:7997",model="x"}', "values": "0.7x30"},
        {"series": 'vecmill_queue_seconds{job="vecmill",instance="b:7997",model="y"}', "values": "0.6x30"},
    ]
    found = links(promtool, series, "14m", tmp_path)
    assert found == {
        "VecmillDown": "http://b:7997/alerts/VecmillDown",
        "VecmillQueueLong": "http://b:7997/alerts/VecmillQueueLong",
    }
    assert links(promtool, series[:2], "14m", tmp_path) == {
        "VecmillDown": "http://a:7997/alerts/VecmillDown",
    }


def links(promtool: str, series: list[dict[str, str]], at: str, folder: Path) -> dict[str, str]:
    """The links of the alerts that fire at a time, as promtool prints them of a test that expects none."""
    names = [alert.name for alert in ALERTS]
    tests = [{"eval_time": at, "alertname": name, "exp_alerts": []} for name in names]
    test = {"interval": f"{INTERVAL_S}s", "input_series": series, "alert_rule_test": tests}
    path = folder / "links.yaml"
    document = {"rule_files": [str(RULES)], "evaluation_interval": f"{INTERVAL_S}s", "tests": [test]}
    path.write_text(yaml.safe_dump(document, width=1_000_000))
    done = subprocess.run([promtool, "test", "rules", str(path)], capture_output=True, text=True, check=False)
    found = re.findall(
        r'Labels:\{alertname="(\w+)".*?runbook_url="([^"]*)"', done.stdout + done.stderr, re.DOTALL
    )
    return dict(found)


def check(promtool: str, recording: Recording, expected: list[str], folder: Path) -> None:
    """Fail unless the alerts that fire during the recording are the expected ones."""
    assert any(recording.pages) or not recording.is_target
    check_series(promtool, replay(recording, NAMES), duration([recording]), expected, folder)


def check_series(
    promtool: str,
    found: dict[str, list[str]],
    until: str,
    expected: list[str],
    folder: Path,
    interval_s: int = INTERVAL_S,
) -> None:
    """Fail unless the alerts that fire for these values of series are the expected ones."""
    series = [{"series": name, "values": " ".join(values)} for name, values in found.items()]
    samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in expected]
    query = {"expr": FIRED, "eval_time": until, "exp_samples": samples}
    test = {"interval": f"{interval_s}s", "input_series": series, "promql_expr_test": [query]}
    path = folder / "test.yaml"
    document = {"rule_files": [str(RULES)], "evaluation_interval": f"{interval_s}s", "tests": [test]}
    path.write_text(yaml.safe_dump(document, width=1_000_000))
    run([promtool, "test", "rules", str(path)])


def run(line: list[str]) -> str:
    """The output of a command; fails with the output if the command does."""
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
