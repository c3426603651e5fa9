"""A simulated process: the real scheduler and the real lanes, with calls and threads that only take time.

How it works. The clock is a number. Events are arrivals, ends of calls and ends of pieces of Python code. The
lanes are objects of `vecmill.batching.lanes` without threads: the simulation does what a thread would do, one
step at a time, and calls the methods that a thread would call. So batches, widths, priorities and refusals
are those of the real code. Pieces of Python code wait for each other in one line, as threads wait for the
interpreter's lock. Calls run side by side on the cores of a `Machine`, whose shares change with each event.
"""

import heapq
import itertools
import math
import statistics
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np

from bench.simulation.answers import Answers
from bench.simulation.loads import Load, Stream
from bench.simulation.machine import LOW_PRIORITY_SHARE, Machine
from vecmill.batching.change import Change
from vecmill.batching.containment import Outcomes
from vecmill.batching.lane_watch import EngineCall, Lane
from vecmill.batching.lanes import Lanes
from vecmill.batching.scheduler import Ask, Scheduler, SealedBatch
from vecmill.batching.ticket import QueuedRequest
from vecmill.config import MillConfig
from vecmill.errors import OverloadError
from vecmill.hardware.budget import CoreBudget
from vecmill.values.batch import TokenSequence
from vecmill.values.engine_plan import CostModel, EngineInfo
from vecmill.values.observer import Observer
from vecmill_server.base.time_limit import limit_time

# A client that is refused asks again after this time.
RETRY_S = 0.05
HANG_S = 1e9

_IDS = np.zeros(65_536, np.int64)
_EMBEDDING: Any = np.zeros((1, 1), np.float32)


@dataclass(slots=True)
class RunningCall:
    """A call that runs: the seconds that it still takes with all its cores, and the bytes that it reads."""

    lane: Lane
    work: SealedBatch
    call: EngineCall
    left_s: float
    bytes_s: float


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request of a client: its stream, when it was sent, and who sends the next one."""

    stream: Stream
    sent_at: float
    client: Iterator[tuple[int, ...]] | None


@dataclass(slots=True)
class Found(Answers):
    """What a simulated run finds, after its warm-up. Times are in seconds."""

    texts: int = 0
    busy_core_s: float = 0.0
    python_s: float = 0.0
    batch_tokens: list[int] = field(default_factory=list)
    widths: Counter[int] = field(default_factory=Counter)

    @property
    def mean_batch_tokens(self) -> float:
        """The mean tokens of a call."""
        return statistics.fmean(self.batch_tokens) if self.batch_tokens else 0.0


class _NoEngine:
    """An engine of which only the description is read."""

    def __init__(self, info: EngineInfo) -> None:
        self.info = info

    def renew(self) -> None:
        """Do nothing."""


class SimulatedProcess:
    """One process under a load; see the module docstring."""

    def __init__(
        self,
        machine: Machine,
        load: Load,
        *,
        seed: int,
        widths: tuple[int, ...] | None = None,
    ) -> None:
        """`widths` are the numbers of cores of a call, by default one and all cores."""
        self.now = 0.0
        self._machine = machine
        self._load = load
        self._seed = seed
        widths = widths or tuple(sorted({1, machine.cores}))
        info = EngineInfo("simulated", "fp32", "cpu", 1, 65_536, widths)
        cost = CostModel(machine.call.fixed_s, machine.call.per_token_s)
        lanes = info.lanes_on(machine.cores)
        self.budget = CoreBudget(machine.cores)
        self.scheduler = Scheduler(limit_time(MillConfig()), cost, lanes=lanes, widths=widths)
        self._change = Change(self.budget, self.scheduler.queue.counts, Observer())
        self.lanes = Lanes(
            cast("Any", _NoEngine(info)),
            self.scheduler,
            self._change,
            self._settle,
            clock=lambda: self.now,
            hang_s=HANG_S,
        )
        # The condition has no waiting threads. The simulation wakes its idle lanes instead.
        self.lanes.condition.notify = self._wake_one  # type: ignore[method-assign, assignment]
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._calls: list[RunningCall] = []
        self._idle = deque(self.lanes.all)
        self._was_idle = dict.fromkeys(self.lanes.all, True)
        self._python: deque[tuple[float, Callable[[], None]]] = deque()
        self._python_is_busy = False
        self._asked: dict[QueuedRequest, Waiting] = {}
        self._number = itertools.count()
        self.found = Found()

    def run(self, seconds: float, *, warm_up_s: float = 2.0) -> Found:
        """Run for so long, after a warm-up whose figures are left out."""
        for stream in self._load.streams:
            self._begin(stream)
        self._run_until(warm_up_s)
        self.found = Found(seconds)
        self._run_until(warm_up_s + seconds)
        return self.found

    # Time.

    def _run_until(self, end: float) -> None:
        while True:
            share = self._share()
            ending = min(self._calls, key=lambda call: call.left_s / share(call), default=None)
            ends_at = math.inf if ending is None else self.now + ending.left_s / share(ending)
            next_at = min(ends_at, self._events[0][0] if self._events else math.inf, end)
            self._advance(next_at - self.now, share)
            self.now = next_at
            if next_at == end:
                return
            if ending is not None and next_at == ends_at:
                self._calls.remove(ending)
                self._end_call(ending)
            else:
                heapq.heappop(self._events)[2]()

    def _advance(self, passed_s: float, share: Callable[[RunningCall], float]) -> None:
        for call in self._calls:
            part = share(call) * passed_s
            call.left_s -= part
            self.found.busy_core_s += part * call.work.width
        self.found.python_s += passed_s * self._python_is_busy

    def _share(self) -> Callable[[RunningCall], float]:
        """Return the function that gives the share of its full speed at which a call runs now."""
        free = self._machine.cores - self._python_is_busy
        usual = sum(call.work.width for call in self._calls if not _yields(call))
        yielding = sum(call.work.width for call in self._calls if _yields(call))
        # Calls of long texts get the cores that others leave, and a small share of their own at least.
        left = max(LOW_PRIORITY_SHARE * yielding, free - usual)
        of_yielding = min(1.0, left / yielding, free / yielding) if yielding else 1.0
        of_usual = min(1.0, (free - of_yielding * yielding) / usual) if usual else 1.0
        memory = self._machine.memory_share(sum(call.bytes_s for call in self._calls))
        return lambda call: memory * max(of_yielding if _yields(call) else of_usual, 1e-6)

    def _at(self, time: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._order), action))

    def _run_python(self, seconds: float, action: Callable[[], None]) -> None:
        """Run `action` at the end of a piece of Python code, which waits for the interpreter's lock."""
        self._python.append((seconds, action))
        if not self._python_is_busy:
            self._next_python()

    def _next_python(self) -> None:
        self._python_is_busy = bool(self._python)
        if self._python_is_busy:
            seconds, action = self._python.popleft()
            self._at(self.now + seconds, lambda: self._end_python(action))

    def _end_python(self, action: Callable[[], None]) -> None:
        action()
        self._next_python()

    # Clients, and the event loop.

    def _begin(self, stream: Stream) -> None:
        for client in range(stream.clients):
            self._send(stream, stream.requests(self._seed, client))
        if not stream.clients:
            self._arrive(stream, stream.arrivals(self._seed), stream.requests(self._seed))

    def _arrive(self, stream: Stream, arrivals: Iterator[float], requests: Iterator[tuple[int, ...]]) -> None:
        def send() -> None:
            self._receive(next(requests), Waiting(stream, self.now, None))
            self._arrive(stream, arrivals, requests)

        self._at(next(arrivals), send)

    def _send(self, stream: Stream, client: Iterator[tuple[int, ...]]) -> None:
        self._receive(next(client), Waiting(stream, self.now, client))

    def _receive(self, lengths: tuple[int, ...], waiting: Waiting) -> None:
        before_s = self._machine.python.request_s / 2
        self._run_python(before_s, lambda: self._admit(lengths, waiting))

    def _admit(self, lengths: tuple[int, ...], waiting: Waiting) -> None:
        sequences = [self._make_sequence(length) for length in lengths]
        try:
            with self._change:
                request = self.scheduler.admit(sequences, Ask(), self.now)
                self.lanes.condition.notify()
        except OverloadError:
            self.found.refused += 1
            if waiting.client is not None:
                self._at(self.now + RETRY_S, lambda: self._receive(lengths, waiting))
            return
        self._asked[request] = waiting

    def _make_sequence(self, length: int) -> TokenSequence:
        ids = _IDS[:length]
        return TokenSequence(ids, ids, 0, b"%d" % next(self._number))

    def _settle(self, ended: list[QueuedRequest]) -> None:
        for request in ended:
            self._run_python(self._machine.python.request_s / 2, partial(self._answer, request))

    def _answer(self, request: QueuedRequest) -> None:
        waiting = self._asked.pop(request)
        name = waiting.stream.name
        if request.error is None:
            self.found.latencies_s.setdefault(name, []).append(self.now - waiting.sent_at)
            self.found.texts += len(request.tickets)
        if waiting.client is not None:
            self._send(waiting.stream, waiting.client)

    # Lanes.

    def _wake_one(self, _count: int = 1) -> None:
        """Wake the lane that has waited longest, as a condition does."""
        if self._idle:
            lane = self._idle.popleft()
            python = self._machine.python
            self._at(
                self.now + python.wake_s,
                lambda: self._run_python(python.turn_s / 2, lambda: self._take(lane)),
            )

    def _take(self, lane: Lane) -> None:
        """Do what the thread of a lane does when it looks for a batch."""
        with self._change:
            has_work = bool(self.scheduler.queue.work_texts)
            self._was_idle[lane] |= not has_work
            may = has_work and self.budget.may_take(self.lanes._narrow, self.lanes.condition)
            work = self.lanes._seal(lane, self._was_idle[lane]) if may else None
        if work is None:
            self._idle.append(lane)
            return
        self._was_idle[lane] = False
        lengths = [job.tokens for job in work.jobs]
        call = self.lanes.watch.begin_call(lane, lengths, work.width)
        cost = self._machine.call
        seconds = cost.seconds(lengths, work.width) * cost.noise_at(self.now)
        bytes_s = self._machine.weight_bytes / seconds
        self._calls.append(RunningCall(lane, work, call, seconds, bytes_s))
        self.found.batch_tokens.append(sum(lengths))
        self.found.widths[work.width] += 1

    def _end_call(self, call: RunningCall) -> None:
        self.lanes.watch.end_call(call.call)
        self._run_python(self._machine.python.turn_s, lambda: self._finish(call))

    def _finish(self, call: RunningCall) -> None:
        outcomes = Outcomes([_EMBEDDING] * len(call.work.jobs), 0)
        with self._change:
            ended = self.lanes._finish(call.lane, outcomes, self.now)
        self._settle(ended)
        self._take(call.lane)


def _yields(call: RunningCall) -> bool:
    return call.work.has_long_text and call.work.width > 1
