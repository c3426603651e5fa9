"""A run that was interrupted is gone on with: nothing is measured twice, and the result is the same."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.landscape import InventedMachine, search_space_of
from vecmill.commands.optimize.choice import Goal
from vecmill.commands.optimize.journal import Journal, JournalledBench
from vecmill.commands.optimize.measurements import Measurements, Pass
from vecmill.commands.optimize.search import Search
from vecmill.serving_plan.plans import JsonObject, kind_of
from vecmill.values.engine_plan import EnginePlan

SPACE = search_space_of()
RUN: JsonObject = {"model": "abc", "machine": "def"}


class Interrupted(InventedMachine):
    """Stops in the middle of a pass."""

    def run_pass(self, number: int, plans: Sequence[EnginePlan]) -> Pass:
        if number == 5:
            raise KeyboardInterrupt
        return super().run_pass(number, plans)


def search(machine: InventedMachine, file: Path, run: JsonObject = RUN) -> tuple[Measurements, Journal]:
    journal = Journal.open(file, run)
    bench = JournalledBench(machine, journal)
    return Search(SPACE, bench, Goal(), limit_s=300.0, clock=machine.now).run(), journal


def interrupt(file: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        search(Interrupted(SPACE, 0), file)


def test_a_second_run_goes_on_where_the_first_was_stopped(tmp_path: Path) -> None:
    file = tmp_path / "measurements.jsonl"
    interrupt(file)
    second = InventedMachine(SPACE, 0)
    measured, journal = search(second, file)
    whole = InventedMachine(SPACE, 0)
    search(whole, tmp_path / "another")
    assert journal.is_resumed
    assert len(measured.passes) >= 5
    assert second.measurements < whole.measurements
    # Beside the safe plan, which is needed for measuring, nothing that is known is checked again.
    known = {plan for plan in journal.screenings if kind_of(plan) != kind_of(measured.safe)}
    early = [plan for plan in SPACE.kinds[:5] if plan in known]
    assert early
    assert not set(early) & set(second.admitted)


def test_a_finished_search_is_read_back_without_measuring(tmp_path: Path) -> None:
    file = tmp_path / "measurements.jsonl"
    first, _ = search(InventedMachine(SPACE, 0), file)
    again = InventedMachine(SPACE, 1)  # would measure something else
    second, _ = search(again, file)
    assert again.measurements == 0
    assert second.passes == first.passes
    assert second.screenings == first.screenings


def test_what_cannot_be_loaded_is_not_tried_again(tmp_path: Path) -> None:
    file = tmp_path / "measurements.jsonl"
    failing = {kind_of(plan): "no such instruction" for plan in SPACE.kinds if plan.engine == "torch"}
    first, _ = search(InventedMachine(SPACE, 0, failing=failing), file)
    second, _ = search(InventedMachine(SPACE, 0), file)
    assert second.failures == first.failures
    assert "no such instruction" in second.failures.values()


def test_a_torn_line_is_measured_again(tmp_path: Path) -> None:
    file = tmp_path / "measurements.jsonl"
    interrupt(file)
    whole = file.read_text()
    file.write_text(whole[:-20])
    measured, _ = search(InventedMachine(SPACE, 0), file)
    assert len(measured.passes) >= 5
    assert all(json.loads(line) for line in file.read_text().splitlines())


@pytest.mark.parametrize("other", [{"model": "xyz", "machine": "def"}, {"model": "abc", "machine": "ghi"}])
def test_another_model_or_machine_starts_anew(tmp_path: Path, other: JsonObject) -> None:
    file = tmp_path / "measurements.jsonl"
    interrupt(file)
    _, journal = search(InventedMachine(SPACE, 0), file, other)
    assert not journal.is_resumed


def test_a_run_that_was_done_is_no_run_to_go_on_with(tmp_path: Path) -> None:
    file = tmp_path / "measurements.jsonl"
    _, journal = search(InventedMachine(SPACE, 0), file)
    journal.write({"done": True})
    assert not Journal.open(file, RUN).is_resumed
