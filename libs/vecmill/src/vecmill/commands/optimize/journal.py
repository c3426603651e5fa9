"""The journal of measurements, a file with one JSON object per line, to continue an interrupted run.

    {"run": {...}}                                   settings of the run: model, machine, ...
    {"admitted": {"plan": {...}, ...}}               a plan that was loaded and checked
    {"refused": {"plan": {...}, "reason": "..."}}    a plan that failed to load, or its check
    {"pass": {...}}                                  a complete pass
    {"done": true}                                   end of the run; nothing to continue

A search depends on its measurements alone. So a later run repeats the search from the start with the
measurements in the file, and soon reaches the point where the earlier run stopped.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from vecmill.commands.optimize.measurements import (
    Pass,
    Screening,
    read_pass,
    read_screening,
    write_pass,
    write_screening,
)
from vecmill.commands.optimize.search import Bench, CandidateFailed
from vecmill.serving_plan.plans import JsonObject, read_plan, write_plan
from vecmill.values.engine_plan import EnginePlan
from vecmill.values.json_text import decode_json


class Journal:
    """A file of measurements. `is_resumed` tells whether the file had entries of an earlier run."""

    def __init__(self, file: Path, entries: Sequence[JsonObject], run: JsonObject) -> None:
        self._file = file
        self.is_resumed = bool(entries)
        self.screenings: dict[EnginePlan, Screening | CandidateFailed] = {}
        self.passes: dict[int, Pass] = {}
        for entry in entries:
            self._remember(entry)
        # The whole file is written again, since the last line may be incomplete.
        lines = [json.dumps(entry) + "\n" for entry in entries or [{"run": run}]]
        file.write_text("".join(lines), encoding="utf-8")

    @classmethod
    def open(cls, file: Path, run: JsonObject) -> Self:
        """Open `file`, with its entries if they belong to an unfinished run with the same settings."""
        return cls(file, _unfinished_entries(file, run), run)

    def write(self, entry: JsonObject) -> None:
        """Append a line and close the file, so that the line survives the end of the process."""
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        self._remember(entry)

    def _remember(self, entry: JsonObject) -> None:
        if found := entry.get("admitted"):
            self.screenings[read_plan(found["plan"])] = read_screening(found)
        elif found := entry.get("refused"):
            self.screenings[read_plan(found["plan"])] = CandidateFailed(found["reason"])
        elif found := entry.get("pass"):
            done = read_pass(found)
            self.passes[done.number] = done


class JournalledBench:
    """A bench that does not repeat the measurements in a journal. Satisfies `search.Bench`."""

    def __init__(self, bench: Bench, journal: Journal) -> None:
        self._bench = bench
        self._journal = journal
        self._safe: EnginePlan | None = None
        self._is_ready = False

    @property
    def capacity(self) -> int:
        """The capacity of the wrapped bench, which depends on its safe plan."""
        self._make_ready()
        return self._bench.capacity

    def screen(self, plan: EnginePlan) -> Screening:
        """Load and check a plan unless the journal has the result. Raises `CandidateFailed`."""
        known = self._journal.screenings.get(plan)
        if known is None:
            self._make_ready()
            known = self._admit_now(plan)
        if isinstance(known, CandidateFailed):
            raise CandidateFailed(str(known))
        if self._safe is None:
            self._safe = plan
        return known

    def run_pass(self, number: int, plans: Sequence[EnginePlan]) -> Pass:
        """Measure a pass unless the journal has it."""
        known = self._journal.passes.get(number)
        if known is not None and {*known.speeds, *known.failures} == set(plans):
            return known
        self._make_ready()
        done = self._bench.run_pass(number, plans)
        self._journal.write({"pass": write_pass(done)})
        return done

    def _admit_now(self, plan: EnginePlan) -> Screening | CandidateFailed:
        try:
            found = self._bench.screen(plan)
        except CandidateFailed as failure:
            self._journal.write({"refused": {"plan": write_plan(plan), "reason": str(failure)}})
            return failure
        self._journal.write({"admitted": {"plan": write_plan(plan), **write_screening(found)}})
        if self._safe is None:
            self._is_ready = True
        return found

    def _make_ready(self) -> None:
        """Let the bench load and check the safe plan again if its figures come from the journal."""
        if self._safe is not None and not self._is_ready:
            self._bench.screen(self._safe)
            self._is_ready = True


def _unfinished_entries(file: Path, run: JsonObject) -> list[JsonObject]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    entries: list[Any] = []
    for line in lines:
        try:
            entries.append(decode_json(line))
        except ValueError:
            break  # an incomplete line
    is_ours = bool(entries) and entries[0] == {"run": run}
    return entries if is_ours and {"done": True} not in entries else []
