"""What was measured, line by line in a file, so that a run that was interrupted can be gone on with.

    {"run": {...}}                                   what the measurements are bound to: model, machine, ...
    {"admitted": {"plan": {...}, ...}}               a plan that was loaded and checked
    {"refused": {"plan": {...}, "reason": "..."}}    a plan that could not be
    {"pass": {...}}                                  a pass, once it is whole
    {"done": true}                                   the result is written down: nothing to go on with

A search is a function of what it measures. So a later run searches from the start, and gets what is in the
file from there: soon it is where the other one was stopped.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from vecmill.plan import EnginePlan
from vecmill.tuning.documents import (
    Document,
    read_admission,
    read_pass,
    read_plan,
    write_admission,
    write_pass,
    write_plan,
)
from vecmill.tuning.figures import Admission, Pass
from vecmill.tuning.search import Bench, CandidateFailed


class Journal:
    """A file of measurements. `is_resumed` says whether there were any to go on from."""

    def __init__(self, file: Path, entries: Sequence[Document], run: Document) -> None:
        self._file = file
        self.is_resumed = bool(entries)
        self.admissions: dict[EnginePlan, Admission | CandidateFailed] = {}
        self.passes: dict[int, Pass] = {}
        for entry in entries:
            self._remember(entry)
        # Written again as a whole: the last line may have been torn.
        lines = [json.dumps(entry) + "\n" for entry in entries or [{"run": run}]]
        file.write_text("".join(lines), encoding="utf-8")

    @classmethod
    def open(cls, file: Path, run: Document) -> Self:
        """Go on with `file` if it was left unfinished by a run with the same bounds; else start it anew."""
        return cls(file, _unfinished_entries(file, run), run)

    def write(self, entry: Document) -> None:
        """Add a line, and have it on its way to the disk before anything else happens."""
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        self._remember(entry)

    def _remember(self, entry: Document) -> None:
        if found := entry.get("admitted"):
            self.admissions[read_plan(found["plan"])] = read_admission(found)
        elif found := entry.get("refused"):
            self.admissions[read_plan(found["plan"])] = CandidateFailed(found["reason"])
        elif found := entry.get("pass"):
            done = read_pass(found)
            self.passes[done.number] = done


class JournalledBench:
    """A bench that remembers: what the journal has is not measured again. Satisfies `search.Bench`."""

    def __init__(self, bench: Bench, journal: Journal) -> None:
        self._bench = bench
        self._journal = journal
        self._safe: EnginePlan | None = None
        self._is_ready = False

    @property
    def room(self) -> int:
        """As the bench has, which must know the safe plan to say so."""
        self._make_ready()
        return self._bench.room

    def admit(self, plan: EnginePlan) -> Admission:
        """As `Bench.admit`."""
        known = self._journal.admissions.get(plan)
        if known is None:
            self._make_ready()
            known = self._admit_now(plan)
        if isinstance(known, CandidateFailed):
            raise CandidateFailed(str(known))
        if self._safe is None:
            self._safe = plan
        return known

    def run_pass(self, number: int, plans: Sequence[EnginePlan]) -> Pass:
        """As `Bench.run_pass`."""
        known = self._journal.passes.get(number)
        if known is not None and {*known.speeds, *known.failures} == set(plans):
            return known
        self._make_ready()
        done = self._bench.run_pass(number, plans)
        self._journal.write({"pass": write_pass(done)})
        return done

    def _admit_now(self, plan: EnginePlan) -> Admission | CandidateFailed:
        try:
            found = self._bench.admit(plan)
        except CandidateFailed as failure:
            self._journal.write({"refused": {"plan": write_plan(plan), "reason": str(failure)}})
            return failure
        self._journal.write({"admitted": {"plan": write_plan(plan), **write_admission(found)}})
        if self._safe is None:
            self._is_ready = True
        return found

    def _make_ready(self) -> None:
        """Have the bench admit the safe plan where it was the journal that did."""
        if self._safe is not None and not self._is_ready:
            self._bench.admit(self._safe)
            self._is_ready = True


def _unfinished_entries(file: Path, run: Document) -> list[Document]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    entries: list[Any] = []
    for line in lines:
        try:
            entries.append(json.loads(line))
        except ValueError:
            break  # the line that was being written
    is_ours = bool(entries) and entries[0] == {"run": run}
    return entries if is_ours and {"done": True} not in entries else []
