"""The bench: loads, checks and measures plans in worker processes, one for each loaded engine.

The process of the safe plan runs until the end. Other processes are kept as long as memory allows. If memory
is short, the least recently used process is ended first. All processes get the same texts.
"""

import contextlib
import json
import math
import os
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vecmill.commands.optimize.candidates import same_loading
from vecmill.commands.optimize.measurements import Pass, Screening, Speed, read_screening
from vecmill.commands.optimize.search import CandidateFailed
from vecmill.commands.optimize.worker import WorkerSetup
from vecmill.engines.base import EngineCapabilities
from vecmill.errors import SetupError
from vecmill.hardware.memory import available_mb
from vecmill.serving_plan.plans import JsonObject, describe_plan, write_plan
from vecmill.values.clock import Clock, monotonic
from vecmill.values.engine_plan import EnginePlan, Precision

COMMAND = (sys.executable, "-m", "vecmill.commands.optimize.worker")
CAPABILITIES_TIMEOUT_S = 60.0
_TAIL_BYTES = 2000
_END_TIMEOUT_S = 3.0


class Worker:
    """A worker process (`vecmill.commands.optimize.worker`), which answers one request at a time."""

    def __init__(self) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the worker
        # With a process group of its own, Ctrl-C reaches only the parent, which then ends the worker.
        self._process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            encoding="utf-8",
            process_group=0,
        )
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="vecmill-worker", daemon=True)
        self._reader.start()

    def request(self, action: str, *, timeout_s: float, **details: Any) -> JsonObject:
        """Send one request and return the response. Raises `CandidateFailed` with the reason of a failure."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": action, **details}) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise CandidateFailed(self._last_words()) from error
        try:
            line = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            raise CandidateFailed(f"{action} took longer than {timeout_s:.0f} s") from None
        if not line:
            raise CandidateFailed(self._last_words())
        answer: JsonObject = json.loads(line)
        if "error" in answer:
            raise CandidateFailed(answer["error"])
        return answer

    def close(self) -> None:
        """End the process and its children, by force after a timeout. May be called twice."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):  # unsent data
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_TIMEOUT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        self._process.stdout.close()
        self._log.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def _last_words(self) -> str:
        """Return a description of how the process ended, with the last line of its log."""
        status = self._process.wait(_END_TIMEOUT_S)
        size = self._log.seek(0, 2)
        self._log.seek(max(0, size - _TAIL_BYTES))
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        ended = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        return f"its process {ended}" + (f": {lines[-1]}" if lines else "")


def find_engine_capabilities(name: str) -> EngineCapabilities:
    """Return the capabilities of engine `name`, from a process of its own, since runtimes take much memory.

    Raises `CandidateFailed`.
    """
    with contextlib.closing(Worker()) as worker:
        found = worker.request("find_capabilities", timeout_s=CAPABILITIES_TIMEOUT_S, engine=name)
    devices = {device: tuple(map(Precision, offered)) for device, offered in found["devices"].items()}
    return EngineCapabilities(devices, tuple(found["length_multiples"]))


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
