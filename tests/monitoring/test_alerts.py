"""Each alert fires on the fault that it is for, and no other alert does; on a healthy server none fires.

The rules are run by promtool over scrapes of live servers (`faults`).
"""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from monitoring.faults import FAULTS, INTERVAL_S, Recording, duration, record_health, replay
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


@pytest.mark.full
@pytest.mark.parametrize("expected", [[], ["VecmillDown"], ["VecmillAbsent", "VecmillDown"]])
def test_other_alerts_than_expected_are_found(promtool: str, expected: list[str], tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="VecmillAbsent"):
        check(promtool, FAULTS["VecmillAbsent"](tmp_path), expected, tmp_path)


def check(promtool: str, recording: Recording, expected: list[str], folder: Path) -> None:
    """Fail unless the alerts that fire during the recording are the expected ones."""
    assert any(recording.pages) or not recording.is_target
    series = [
        {"series": name, "values": " ".join(values)} for name, values in replay(recording, NAMES).items()
    ]
    samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in expected]
    query = {"expr": FIRED, "eval_time": duration([recording]), "exp_samples": samples}
    test = {"interval": f"{INTERVAL_S}s", "input_series": series, "promql_expr_test": [query]}
    path = folder / "test.yaml"
    document = {"rule_files": [str(RULES)], "evaluation_interval": f"{INTERVAL_S}s", "tests": [test]}
    path.write_text(yaml.safe_dump(document, width=1_000_000))
    run([promtool, "test", "rules", str(path)])


def run(line: list[str]) -> str:
    """The output of a command; fails with the output if the command does."""
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
