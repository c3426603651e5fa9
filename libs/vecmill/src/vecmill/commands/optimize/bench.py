"""The bench: loads, checks and measures plans in worker processes, one for each loaded engine.

The process of the safe plan runs until the end. Other processes are kept as long as memory allows. If memory
is short, the least recently used process is ended first. All processes get the same texts.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from vecmill.commands.optimize.candidates import same_loading
from vecmill.commands.optimize.measurement_json import read_screening
from vecmill.commands.optimize.measurements import Pass, Screening, Speed
from vecmill.commands.optimize.search import CandidateFailed
from vecmill.commands.optimize.worker import WorkerSetup
from vecmill.commands.optimize.worker_calls import Worker
from vecmill.errors import SetupError
from vecmill.hardware.memory import available_mb
from vecmill.serving_plan.plans import JsonObject, describe_plan, write_plan
from vecmill.values.clock import Clock, monotonic
from vecmill.values.engine_plan import EnginePlan

MAX_WORKERS, MIN_WORKERS = 5, 2
# The share of the memory that is free after the first load, for all loaded engines.
MEMORY_SHARE = 0.6
# The approximate times of one measurement of the safe plan on an idle machine.
THROUGHPUT_S, LATENCY_S = 1.0, 0.3
# The shares of the time limit for one load of an engine, and for the reference.
LOAD_SHARE, REFERENCE_SHARE = 0.25, 0.04
# The minimum timeout of a request, and of a load if there is enough time.
MIN_TIMEOUT_S, MIN_LOAD_S = 10.0, 30.0
MAX_SLOWDOWN = 20  # a plan that is this many times slower than the safe plan fails


class WorkerBench:
    """A `search.Bench` of worker processes. `scratch` is a folder for shared files.

    After `limit_s` seconds, the bench waits only for the safe plan.
    """

    def __init__(
        self, setup: WorkerSetup, scratch: Path, *, limit_s: float, clock: Clock = monotonic
    ) -> None:
        self._setup = setup
        self._reference_file = str(scratch / "reference.npz")
        self._limit_s = limit_s
        self._clock = clock
        self._ends = clock() + limit_s
        self._workers: dict[EnginePlan, Worker] = {}
        self._loadings: dict[EnginePlan, JsonObject] = {}
        self._safe: EnginePlan | None = None
        self._checked_texts = 0
        self._sample = _Sample(1.0)
        self._max_workers = MIN_WORKERS

    @property
    def capacity(self) -> int:
        """The number of loaded engines that a pass can measure beside the safe plan."""
        return self._max_workers - 1

    def screen(self, plan: EnginePlan) -> Screening:
        """Load and check a plan; the first success becomes the safe plan. Raises `CandidateFailed`."""
        worker = self._worker(plan)
        if self._safe is None:
            self._prepare(plan, worker)
        accuracy = worker.request(
            "check", timeout_s=self._timeout_s(), file=self._reference_file, texts=self._checked_texts
        )
        return read_screening({**self._loadings[same_loading(plan)], "accuracy": accuracy})

    def run_pass(self, number: int, plans: Sequence[EnginePlan]) -> Pass:
        """Measure the safe plan, `plans` in an order that `number` seeds, and the safe plan again."""
        assert self._safe is not None, "no plan has been screened"
        failures: dict[EnginePlan, str] = {}
        ready = []
        # All plans are loaded before the first measurement, so that the measurements are close in time.
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
        for loading in list(self._workers):
            self._end(loading)

    def __enter__(self) -> "WorkerBench":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _prepare(self, plan: EnginePlan, worker: Worker) -> None:
        """Make `plan` the safe plan: compute the reference outputs, and time a single text."""
        budget_s = REFERENCE_SHARE * self._limit_s
        kept = worker.request(
            "store_reference", timeout_s=self._limit_s, file=self._reference_file, budget_s=budget_s
        )
        self._checked_texts = kept["texts"]
        self._sample = _Sample(kept["single_s"])
        self._safe = plan
        self._max_workers = _fitting(self._loadings[same_loading(plan)]["memory_mb"])

    def _worker(self, plan: EnginePlan) -> Worker:
        """Return the process that has `plan` loaded. Raises `CandidateFailed`."""
        loading = same_loading(plan)
        worker = self._workers.pop(loading, None)
        if worker is None:
            self._end_unused()
            worker = Worker()
            try:
                self._loadings[loading] = worker.request(
                    "load",
                    timeout_s=self._timeout_s(max(MIN_LOAD_S, LOAD_SHARE * self._limit_s)),
                    setup=asdict(self._setup),
                    plan=write_plan(plan),
                )
            except BaseException:
                worker.close()
                raise
        self._workers[loading] = worker  # the last entry is the most recently used
        return worker

    def _timeout_s(self, max_s: float = math.inf) -> float:
        """Return the timeout of a request: `max_s`, or the remaining time if that is shorter.

        The safe plan gets the whole time limit, since there is no result without it.
        """
        if self._safe is None:
            return max(MIN_LOAD_S, self._limit_s)
        return max(MIN_TIMEOUT_S, min(max_s, self._ends - self._clock()))

    def _end_unused(self) -> None:
        kept = None if self._safe is None else same_loading(self._safe)
        dispensable = [loading for loading in self._workers if loading != kept]
        for loading in dispensable[: max(0, len(self._workers) + 1 - self._max_workers)]:
            self._end(loading)

    def _measure(self, plan: EnginePlan) -> Speed:
        sample = self._sample
        measured = self._worker(plan).request(
            "measure",
            timeout_s=MAX_SLOWDOWN * 2 * sample.expected_s,
            max_batch_tokens=plan.max_batch_tokens,
            texts=sample.texts,
            single_texts=sample.single_texts,
        )
        return Speed(**measured)

    def _measure_safe(self) -> Speed:
        assert self._safe is not None
        try:
            return self._measure(self._safe)
        except CandidateFailed as failure:
            raise SetupError(f"The safe plan, {describe_plan(self._safe)}, failed: {failure}.") from failure

    def _end(self, loading: EnginePlan) -> None:
        worker = self._workers.pop(loading, None)
        if worker is not None:
            worker.close()


class _Sample:
    """The number of texts of a measurement: a power of 2, chosen by the time of a single text."""

    def __init__(self, single_s: float) -> None:
        self.texts = _power_of_two(THROUGHPUT_S / single_s, 16, 512)
        self.single_texts = _power_of_two(LATENCY_S / single_s, 4, 32)
        self.expected_s = single_s * (self.texts + self.single_texts) + 1.0


def _power_of_two(value: float, minimum: int, maximum: int) -> int:
    return int(min(maximum, max(minimum, 2.0 ** round(math.log2(value)))))


def _fitting(memory_mb: float | None) -> int:
    """Return the number of engines of this size that fit into memory at once."""
    free_mb = available_mb()
    if memory_mb is None or free_mb is None:
        return MIN_WORKERS
    return max(MIN_WORKERS, min(MAX_WORKERS, int(MEMORY_SHARE * free_mb / memory_mb)))
