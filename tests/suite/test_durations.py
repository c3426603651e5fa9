"""The durations of a whole run are recorded; a folder above its budget fails it, a slow machine does not."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from suite.durations import (
    BETWEEN_SAMPLES_S,
    BUDGETS,
    MARGIN,
    SAMPLE_S,
    SLACK_S,
    Durations,
    Pace,
    budgets_of,
    folder_of,
    is_whole,
    over_budget,
    read_budgets,
    take_sample,
)
from support.source_tree import ROOT

# What a planted project registers: each of its tests says itself how long it took.
CONFTEST = """
import pathlib
import sys

import pytest

sys.path.insert(0, {tests!r})
from suite.durations import DurationRecorder, Durations, Pace

HERE = pathlib.Path(__file__).parents[1]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    report.duration = item.function.seconds if report.when == "call" else 0.0
    return report


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        durations = Durations(Pace(lambda: {sample}))
        config.pluginmanager.register(DurationRecorder(durations, HERE / "build", HERE / "budgets.json"))
"""
TEST = "def test_one(): pass\ntest_one.seconds = {seconds}\n"


class Machine:
    """A clock, and samples that take as long as the machine is slow."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slowness = 1.0
        self.taken = 0
        self.pace = Pace(self._sample, lambda: self.now)

    def _sample(self) -> float:
        self.taken += 1
        return self.slowness * SAMPLE_S


def run_planted(folder: Path, sample: float, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A project whose folder `slow` takes ten times its budget, on a machine whose sample takes `sample`."""
    for name, seconds in (("quick", 40), ("slow", 400)):
        (folder / "tests" / name).mkdir(parents=True)
        (folder / "tests" / name / f"test_{name}.py").write_text(TEST.format(seconds=seconds))
    (folder / "tests/conftest.py").write_text(CONFTEST.format(tests=str(ROOT / "tests"), sample=sample))
    (folder / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
    (folder / "budgets.json").write_text(json.dumps({"tests/quick": 40, "tests/slow": 40}))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "xdist.plugin", *arguments]
    # Where coverage is measured, no folder is judged.
    variables = {name: value for name, value in os.environ.items() if name != "COVERAGE_RUN"}
    variables["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # their imports take longer than the run
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [(), ("-n", "2", "--dist", "worksteal")], ids=["alone", "workers"])
def test_a_folder_above_its_budget_fails_the_run(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = run_planted(tmp_path, SAMPLE_S, *arguments)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    (complaint,) = [line for line in done.stdout.splitlines() if line.startswith("OVER BUDGET")]
    assert "tests/slow took 400 s of its budget of 40 s" in complaint
    record = json.loads((tmp_path / "build/test-durations.json").read_text())
    assert record["folders"] == {"tests/slow": 400, "tests/quick": 40}
    assert list(record["slowest"]) == [
        "tests/slow/test_slow.py::test_one",
        "tests/quick/test_quick.py::test_one",
    ]
    text = (tmp_path / "build/test-durations.txt").read_text()
    assert "   400.0       40  tests/slow\n" in text


def test_a_machine_that_is_ten_times_slower_fails_nothing(tmp_path: Path) -> None:
    done = run_planted(tmp_path, 10 * SAMPLE_S)
    assert done.returncode == pytest.ExitCode.OK, done.stdout
    assert "OVER BUDGET" not in done.stdout


def test_a_test_is_judged_by_the_pace_of_its_time() -> None:
    machine = Machine()
    durations = Durations(machine.pace)
    for slowness in (1.0, 5.0, 1.0):
        machine.slowness = slowness
        # So long that the last samples are all of this time.
        for _ in range(4):
            machine.now += BETWEEN_SAMPLES_S
            machine.pace.look()
        durations.add(f"tests/a/test_a.py::test_one[{slowness}]", 7 * slowness)
    assert durations.record()["folders"] == {"tests/a": 21}
    assert durations.record()["measured"] == 49


def test_one_slow_sample_changes_nothing() -> None:
    machine = Machine()
    paces = []
    for slowness in (1, 1, 20, 1, 1):
        machine.slowness = slowness
        machine.now += BETWEEN_SAMPLES_S
        paces.append(machine.pace.look())
    assert paces == [1] * 5


def test_samples_are_taken_now_and_then() -> None:
    machine = Machine()
    for _ in range(1_000):
        machine.now += BETWEEN_SAMPLES_S / 100
        machine.pace.look()
    assert machine.taken == 10


def test_a_sample_takes_time() -> None:
    assert take_sample() > 0.01


@pytest.mark.parametrize(
    ("budgets", "complaints"),
    [
        ({"tests/a": 100}, 0),
        ({"tests/a": (100 - SLACK_S) / MARGIN - 1}, 1),
        ({"tests/a": (100 - SLACK_S) / MARGIN + 1}, 0),
        # A folder without a budget may take the slack.
        ({}, 1),
    ],
)
def test_the_margin_and_the_slack_are_added_to_a_budget(budgets: dict[str, float], complaints: int) -> None:
    assert len(over_budget({"tests/a": 100}, budgets)) == complaints
    assert over_budget({"tests/new": SLACK_S}, budgets) == []


def test_new_budgets_are_kept_by_the_run_that_they_are_of() -> None:
    folders = {"tests/b": 0.1, "tests/a": 123.4}
    budgets = budgets_of(folders)
    assert budgets == {"tests/a": 123, "tests/b": 1}
    assert over_budget(folders, budgets) == []


def test_a_folder_has_the_tests_below_it() -> None:
    assert folder_of("tests/a/b/test_c.py::test_d[tests/e::f]") == "tests/a"
    assert folder_of("tests/test_clock.py::test_d") == "tests/test_clock.py"


@pytest.mark.parametrize(
    ("name", "value", "whole"),
    [
        ("markexpr", "not full", True),
        ("markexpr", "", False),
        ("keyword", "rerank", False),
        ("deselect", ["tests/a"], False),
        ("lf", True, False),
        ("collectonly", True, False),
    ],
)
def test_only_a_whole_run_is_recorded(name: str, value: object, whole: bool) -> None:
    option = SimpleNamespace(**{"markexpr": "not full", name: value})
    config: Any = SimpleNamespace(option=option, args_source=pytest.Config.ArgsSource.TESTPATHS)
    assert is_whole(config) is whole
    config.args_source = pytest.Config.ArgsSource.ARGS
    assert not is_whole(config)


def test_every_budget_is_that_of_a_folder_or_file_that_there_is() -> None:
    assert [name for name in read_budgets(BUDGETS) if not (ROOT / name).exists()] == []
