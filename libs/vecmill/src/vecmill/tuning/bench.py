"""Loads, checks and measures plans, each loaded engine in a process of its own.

The safe plan's process stays for the whole run. Of the others, as many stay as memory allows; the one that
was not needed for longest goes first. All of them get the same texts.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from vecmill.clock import Clock, monotonic
from vecmill.errors import SetupError
from vecmill.plan import EnginePlan
from vecmill.tuning.calls import Worker
from vecmill.tuning.candidates import same_loading
from vecmill.tuning.documents import Document, read_admission, write_plan
from vecmill.tuning.figures import Admission, Pass, Speed
from vecmill.tuning.machine import available_mb
from vecmill.tuning.search import CandidateFailed, describe_plan
from vecmill.tuning.worker import Subject

MOST_ALIVE, FEWEST_ALIVE = 5, 2
# What loaded engines may take of the memory that is free when the first one is loaded.
MEMORY_SHARE = 0.6
# One measurement of the safe plan takes about so long, when nothing else runs.
THROUGHPUT_S, LATENCY_S = 1.0, 0.3
# The parts of the whole time that loading one engine, or computing the reference, may take.
LOAD_SHARE, REFERENCE_SHARE = 0.25, 0.04
# What a request gets however little time there is, and what a load gets if there is so much.
LEAST_PATIENCE_S, LEAST_LOAD_S = 10.0, 30.0
SLOWEST = 20  # a plan may be so many times slower than the safe one before it is given up


class WorkerBench:
    """A `search.Bench` of worker processes. `scratch` holds what they share.

    `limit_s` from now on, no plan but the safe one is waited for any more.
    """

    def __init__(self, subject: Subject, scratch: Path, *, limit_s: float, clock: Clock = monotonic) -> None:
        self._subject = subject
        self._reference_file = str(scratch / "reference.npz")
        self._limit_s = limit_s
        self._clock = clock
        self._ends = clock() + limit_s
        self._alive: dict[EnginePlan, Worker] = {}
        self._loadings: dict[EnginePlan, Document] = {}
        self._safe: EnginePlan | None = None
        self._checked_texts = 0
        self._sample = _Sample(1.0)
        self._most_alive = FEWEST_ALIVE

    @property
    def room(self) -> int:
        """How many loaded engines a pass may have beside the safe plan's."""
        return self._most_alive - 1

    def admit(self, plan: EnginePlan) -> Admission:
        """Load and check a plan; the first that succeeds becomes the safe plan. Raises `CandidateFailed`."""
        worker = self._worker(plan)
        if self._safe is None:
            self._prepare(plan, worker)
        accuracy = worker.ask(
            "check", timeout_s=self._patience_s(), file=self._reference_file, texts=self._checked_texts
        )
        return read_admission({**self._loadings[same_loading(plan)], "accuracy": accuracy})

    def run_pass(self, number: int, plans: Sequence[EnginePlan]) -> Pass:
        """Measure the safe plan, `plans` in an order that `number` decides, and the safe plan again."""
        assert self._safe is not None, "a plan has to be admitted first"
        failures: dict[EnginePlan, str] = {}
        ready = []
        # All are loaded before the first is measured, so that the figures lie close together.
        for plan in plans:
            try:
                self._worker(plan)
                ready.append(plan)
            except CandidateFailed as failure:
                failures[plan] = str(failure)
        random.Random(number).shuffle(ready)
        before = self._measure_safe()
        speeds = {}
        for plan in ready:
            try:
                speeds[plan] = self._measure(plan)
            except CandidateFailed as failure:
                self._end(same_loading(plan))
                failures[plan] = str(failure)
        return Pass(number, before, self._measure_safe(), speeds, failures)

    def close(self) -> None:
        """End all processes."""
        for loading in list(self._alive):
            self._end(loading)

    def __enter__(self) -> "WorkerBench":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _prepare(self, plan: EnginePlan, worker: Worker) -> None:
        """Make `plan` the safe one: compute what others are compared with, and see how fast it is."""
        budget_s = REFERENCE_SHARE * self._limit_s
        kept = worker.ask(
            "keep_reference", timeout_s=self._limit_s, file=self._reference_file, budget_s=budget_s
        )
        self._checked_texts = kept["texts"]
        self._sample = _Sample(kept["lone_s"])
        self._safe = plan
        self._most_alive = _fitting(self._loadings[same_loading(plan)]["memory_mb"])

    def _worker(self, plan: EnginePlan) -> Worker:
        """The process that has `plan` loaded. Raises `CandidateFailed`."""
        loading = same_loading(plan)
        worker = self._alive.pop(loading, None)
        if worker is None:
            self._make_room()
            worker = Worker()
            try:
                self._loadings[loading] = worker.ask(
                    "load",
                    timeout_s=self._patience_s(max(LEAST_LOAD_S, LOAD_SHARE * self._limit_s)),
                    subject=asdict(self._subject),
                    plan=write_plan(plan),
                )
            except BaseException:
                worker.close()
                raise
        self._alive[loading] = worker  # the last is the one that was needed last
        return worker

    def _patience_s(self, most_s: float = math.inf) -> float:
        """How long to wait for an answer: `most_s`, but not beyond the end.

        Without the safe plan there is no result at all, so it is given the whole time.
        """
        if self._safe is None:
            return max(LEAST_LOAD_S, self._limit_s)
        return max(LEAST_PATIENCE_S, min(most_s, self._ends - self._clock()))

    def _make_room(self) -> None:
        kept = None if self._safe is None else same_loading(self._safe)
        dispensable = [loading for loading in self._alive if loading != kept]
        for loading in dispensable[: max(0, len(self._alive) + 1 - self._most_alive)]:
            self._end(loading)

    def _measure(self, plan: EnginePlan) -> Speed:
        sample = self._sample
        measured = self._worker(plan).ask(
            "measure",
            timeout_s=SLOWEST * 2 * sample.expected_s,
            max_batch_tokens=plan.max_batch_tokens,
            texts=sample.texts,
            lone_texts=sample.lone_texts,
        )
        return Speed(**measured)

    def _measure_safe(self) -> Speed:
        assert self._safe is not None
        try:
            return self._measure(self._safe)
        except CandidateFailed as failure:
            raise SetupError(
                f"{describe_plan(self._safe)} is what all else is compared with, and it failed: {failure}."
            ) from failure

    def _end(self, loading: EnginePlan) -> None:
        worker = self._alive.pop(loading, None)
        if worker is not None:
            worker.close()


class _Sample:
    """How many texts a measurement is over, by how long a lone one takes: powers of 2, so that runs agree."""

    def __init__(self, lone_s: float) -> None:
        self.texts = _power_of_two(THROUGHPUT_S / lone_s, 16, 512)
        self.lone_texts = _power_of_two(LATENCY_S / lone_s, 4, 32)
        self.expected_s = lone_s * (self.texts + self.lone_texts) + 1.0


def _power_of_two(wanted: float, least: int, most: int) -> int:
    return int(min(most, max(least, 2.0 ** round(math.log2(wanted)))))


def _fitting(memory_mb: float | None) -> int:
    """How many engines of that size may be loaded at once."""
    free_mb = available_mb()
    if memory_mb is None or free_mb is None:
        return FEWEST_ALIVE
    return max(FEWEST_ALIVE, min(MOST_ALIVE, int(MEMORY_SHARE * free_mb / memory_mb)))
