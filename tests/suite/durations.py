"""How long the tests of each folder take, and whether that is within the budget of the folder.

A whole run (`make test` alone) writes `build/test-durations.txt` and `.json`. It fails if a folder takes
longer than its budget in `tests/duration_budgets.json` by more than MARGIN and SLACK_S. `make durations`
writes the budgets anew from the last whole run.

Budgets are seconds of a machine on which a sample of work takes SAMPLE_S. The sample starts a process and
computes, as tests do, and is taken again and again while the tests run, beside them. The seconds of a test
are scaled by the last samples before its end: on a machine that is slow or busy both take longer.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from support.source_tree import ROOT

BUILD = ROOT / "build"
RECORD = BUILD / "test-durations.json"
TEXT = BUILD / "test-durations.txt"
BUDGETS = ROOT / "tests/duration_budgets.json"

# What one sample takes on two quiet cores of a Xeon of 2023.
SAMPLE_S = 0.25
# Two runs on one shared machine of two cores differ by up to a third after scaling, single folders by more.
MARGIN = 2.0
# Whichever folder comes first in a worker imports the libraries and starts what all share.
SLACK_S = 15.0
BETWEEN_SAMPLES_S = 30.0
# A sample alone may meet a moment that was quiet, or busier than the minutes around it.
SAMPLES_JUDGED = 3
SLOWEST = 30

# The options of pytest that leave tests out.
SELECTING = ("keyword", "deselect", "ignore", "ignore_glob", "lf", "stepwise", "collectonly")

_STARTED = "import json, logging, subprocess, numpy; numpy.ones((300, 300)) @ numpy.ones((300, 300))"


def take_sample() -> float:
    """The seconds that a fixed amount of work takes at this moment."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", _STARTED], check=True)
    sum(number * number % 7 for number in range(600_000))
    return time.perf_counter() - begun


class Pace:
    """How many times slower than SAMPLE_S the machine is, by the last samples."""

    def __init__(
        self, sample: Callable[[], float] = take_sample, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._sample = sample
        self._clock = clock
        self._last: deque[float] = deque(maxlen=SAMPLES_JUDGED)
        self._due = clock()
        self.samples: list[float] = []

    def look(self) -> float:
        """The pace now; takes a sample if the last one is too old."""
        if self._clock() >= self._due:
            self.samples.append(self._sample())
            self._last.append(self.samples[-1])
            self._due = self._clock() + BETWEEN_SAMPLES_S
        return statistics.median(self._last) / SAMPLE_S


class Durations:
    """The time of tests as they end: in seconds as measured, and scaled by the pace of that moment."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.measured: dict[str, float] = defaultdict(float)
        self.scaled: dict[str, float] = defaultdict(float)

    def add(self, test: str, seconds: float) -> None:
        """Count a phase of `test`, a node id."""
        self.measured[test] += seconds
        self.scaled[test] += seconds / self.pace.look()

    def record(self) -> dict[str, Any]:
        """Scaled seconds by folder and by file, the slowest tests, and the samples."""
        return {
            "folders": _sums(self.scaled, folder_of),
            "files": _sums(self.scaled, file_of),
            "slowest": dict(list(_sums(self.scaled, str).items())[:SLOWEST]),
            "samples": [round(sample, 3) for sample in self.pace.samples],
            "measured": round(sum(self.measured.values()), 1),
        }


def file_of(test: str) -> str:
    return test.partition("::")[0]


def folder_of(test: str) -> str:
    """The folder below `tests`, or the file where that has no folder."""
    return "/".join(file_of(test).split("/")[:2])


def _sums(seconds: Mapping[str, float], group: Callable[[str], str]) -> dict[str, float]:
    """The sums of groups, the largest first."""
    sums: dict[str, float] = defaultdict(float)
    for test, value in seconds.items():
        sums[group(test)] += value
    return {name: round(sums[name], 2) for name in sorted(sums, key=lambda name: -sums[name])}


def over_budget(folders: Mapping[str, float], budgets: Mapping[str, float]) -> list[str]:
    """A sentence for each folder that takes longer than its budget, the margin and the slack."""
    return [
        f"{folder} took {seconds:.0f} s of its budget of {budget:.0f} s: at most "
        f"{budget * MARGIN + SLACK_S:.0f} s pass. Make it faster, or if it is worth that: make durations"
        for folder, seconds in folders.items()
        if seconds > (budget := budgets.get(folder, 0)) * MARGIN + SLACK_S
    ]


def write_text(record: Mapping[str, Any], budgets: Mapping[str, float]) -> str:
    """The record for people."""
    samples = record["samples"] or [SAMPLE_S]
    lines = [
        f"{record['measured']:.0f} s of tests in all workers. Below: seconds of a machine whose sample takes "
        f"{SAMPLE_S} s; on this one it took {min(samples)} to {max(samples)} s, "
        f"{statistics.median(samples):.2f} s in the median of {len(samples)}.",
        "",
        " seconds   budget  folder",
        *(f"{value:8.1f} {budgets.get(name, 0):8.0f}  {name}" for name, value in record["folders"].items()),
        "",
        f" seconds  the {SLOWEST} slowest tests",
        *(f"{value:8.1f}  {name}" for name, value in record["slowest"].items()),
    ]
    return "\n".join(lines) + "\n"


def read_budgets(path: Path) -> dict[str, float]:
    """Seconds by folder."""
    budgets: dict[str, float] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return budgets


def read_file_seconds(path: Path) -> dict[str, float]:
    """Seconds by test file of the last whole run; nothing if there was none."""
    try:
        files: dict[str, float] = json.loads(path.read_text("utf-8"))["files"]
    except (OSError, ValueError, KeyError):
        return {}
    return files


def budgets_of(folders: Mapping[str, float]) -> dict[str, int]:
    """Budgets that a run keeps exactly: its seconds, at least one for each folder."""
    return {folder: max(1, round(seconds)) for folder, seconds in sorted(folders.items())}


def is_whole(config: pytest.Config) -> bool:
    """Whether a run is that of all tests of the quick suite."""
    option = config.option
    return (
        config.args_source is pytest.Config.ArgsSource.TESTPATHS
        and option.markexpr == "not full"
        and not any(getattr(option, name, None) for name in SELECTING)
    )


class DurationRecorder:
    """The plugin of the process that sees all reports: the controller of xdist, or the only one."""

    def __init__(self, durations: Durations, build: Path = BUILD, budgets: Path = BUDGETS) -> None:
        self._durations = durations
        self._build = build
        self._budgets = budgets
        self._complaints: list[str] = []
        self._is_written = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a phase of a test; the parts of a test are in its own time."""
        if not isinstance(report, pytest.SubtestReport):
            self._durations.add(report.nodeid, report.duration)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the record of a whole run, and judge it."""
        if session.shouldstop or session.shouldfail or session.exitstatus not in (0, 1):
            return
        record = self._durations.record()
        budgets = read_budgets(self._budgets)
        self._build.mkdir(exist_ok=True)
        (self._build / RECORD.name).write_text(json.dumps(record, indent=1) + "\n", "utf-8")
        (self._build / TEXT.name).write_text(write_text(record, budgets), "utf-8")
        self._is_written = True
        # Coverage slows tests more than the sample.
        if "COVERAGE_RUN" not in os.environ:
            self._complaints = over_budget(record["folders"], budgets)
        if self._complaints:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say where the durations are, and what is over its budget."""
        if self._is_written:
            terminalreporter.section("durations")
            terminalreporter.line(f"by folder, and the slowest tests: {TEXT.relative_to(ROOT)}")
            for complaint in self._complaints:
                terminalreporter.line(f"OVER BUDGET: {complaint}", red=True)


def register(config: pytest.Config) -> None:
    """Record the durations of a whole run, in the process that sees all of its tests."""
    if not hasattr(config, "workerinput") and is_whole(config):
        config.pluginmanager.register(DurationRecorder(Durations(Pace())))


def main() -> int:
    """`make durations`: write the budgets anew."""
    if not RECORD.exists():
        print(f"{RECORD.relative_to(ROOT)} is written by a whole run: make test", file=sys.stderr)
        return 1
    folders = json.loads(RECORD.read_text("utf-8"))["folders"]
    BUDGETS.write_text(json.dumps(budgets_of(folders), indent=1) + "\n", "utf-8")
    print(TEXT.read_text("utf-8"), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
