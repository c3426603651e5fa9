"""A simulated machine on which several models share the cores.

It has real schedulers, lanes and a real budget, and a virtual clock.

A call occupies its cores for the time that it costs. Clients of a model send one text after the other.
"""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean
from typing import Any, cast

import numpy as np

from batching.simulation import zeros
from vecmill.batching.change import Change
from vecmill.batching.containment import Outcomes
from vecmill.batching.lane_watch import Lane
from vecmill.batching.lanes import Lanes
from vecmill.batching.scheduler import Ask, Scheduler, SealedBatch
from vecmill.batching.ticket import QueuedRequest
from vecmill.config import MillConfig, QueueConfig
from vecmill.hardware.budget import CoreBudget
from vecmill.values.batch import TokenSequence
from vecmill.values.engine_plan import CostModel, EngineInfo
from vecmill.values.observer import Observer

HANG_S = 1e6
SAMPLE_S = 0.01
# No request is refused: the queues of all models are full of work.
CONFIG = MillConfig(queue=QueueConfig(target_wait_s=1e6, timeout_s=1e6))
ROW = np.ones((1, 2), np.float32)


@dataclass(frozen=True)
class SharedModel:
    """A model and its load: what its calls take, what its warm-up found, and its clients' texts.

    `pause_s` is the time of a client between an answer and the next text, `gap_s` the time between two calls
    of a lane, which no prediction has.
    """

    fixed_s: float
    per_token_s: float
    measured: CostModel
    clients: int
    tokens: int
    weight: float = 1.0
    starts_at_s: float = 0.0
    pause_s: float = 0.001
    gap_s: float = 0.0

    def seconds(self, lengths: list[int]) -> float:
        """Return the seconds of a call on one core."""
        return self.fixed_s + self.per_token_s * sum(lengths)


class _NoEngine:
    """An engine of which only the description is read."""

    info = EngineInfo("simulated", "fp32", "cpu", 1, 65_536, (1,))

    def renew(self) -> None:
        """Do nothing."""


@dataclass
class _Served:
    model: SharedModel
    scheduler: Scheduler
    change: Change
    lanes: Lanes
    used_s: float = 0.0
    answers: int = 0
    idle: list[Lane] = field(default_factory=list)


class SharedMachine:
    """The machine; see the module docstring."""

    def __init__(self, models: list[SharedModel], *, cores: int = 2) -> None:
        self.now = 0.0
        self._budget = CoreBudget(cores, clock=lambda: self.now)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._served: list[_Served] = []
        self._waits: list[tuple[float, float]] = []  # of each text, and what it costs
        for model in models:
            self._at(model.starts_at_s, partial(self._start, model))

    def core_seconds(self, from_s: float, until_s: float) -> list[float]:
        """Return the core seconds that each model used between two times."""
        self._run_until(from_s)
        before = [served.used_s for served in self._served]
        self._run_until(until_s)
        after = [served.used_s for served in self._served]
        return [end - begin for begin, end in zip(before, after, strict=True)]

    def waits(self, from_s: float, until_s: float) -> tuple[float, float]:
        """Return the mean predicted wait of texts between two times, and the mean of what they waited.

        Texts count by what they cost: a model with cheap texts has more of them.
        """
        self._run_until(from_s)
        self._waits.clear()
        predicted_s = []
        while self.now < until_s:
            self._run_until(self.now + SAMPLE_S)
            predicted_s.append(self._budget.wait_time.whole_s())
        return fmean(predicted_s), fmean(*zip(*self._waits, strict=True))

    def _start(self, model: SharedModel) -> None:
        config = replace(CONFIG, core_weight=model.weight)
        scheduler = Scheduler(config, model.measured, lanes=self._budget.total)
        change = Change(self._budget, scheduler.queue.counts, Observer())
        served: _Served
        lanes = Lanes(
            cast("Any", _NoEngine()),
            scheduler,
            change,
            lambda ended: self._settle(served, ended),
            clock=lambda: self.now,
            hang_s=HANG_S,
        )
        served = _Served(model, scheduler, change, lanes, idle=list(lanes.all))
        # The condition has no waiting threads: the machine looks for work of idle lanes after each event.
        self._served.append(served)
        for _ in range(model.clients):
            self._send(served)

    def _run_until(self, end: float) -> None:
        while True:
            self._begin_calls()
            if not self._events or self._events[0][0] > end:
                self.now = end
                return
            self.now, _, act = heapq.heappop(self._events)
            act()

    def _at(self, time: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._order), act))

    def _send(self, served: _Served) -> None:
        ids = zeros(served.model.tokens)
        sequence = TokenSequence(ids, ids, 0, b"%d" % next(self._order))
        with served.change:
            served.scheduler.admit([sequence], Ask(), self.now)

    def _begin_calls(self) -> None:
        has_begun = True
        while has_begun and self._budget.free:
            has_begun = False
            for served in self._served:
                if served.idle and (work := self._take(served)) is not None:
                    has_begun = True
                    self._begin(served, served.idle.pop(0), work)

    def _take(self, served: _Served) -> SealedBatch | None:
        with served.change:
            if not served.scheduler.queue.work_texts:
                return None
            if not self._budget.may_take(1, served.lanes.condition):
                return None
            work = served.lanes._seal(served.idle[0], was_idle=False)
        if work is not None:
            costs_s = [served.model.seconds([job.tokens]) for job in work.jobs]
            self._waits += zip(work.waits_s, costs_s, strict=True)
        return work

    def _begin(self, served: _Served, lane: Lane, work: SealedBatch) -> None:
        lengths = [job.tokens for job in work.jobs]
        call = served.lanes.watch.begin_call(lane, lengths, work.width)
        seconds = served.model.seconds(lengths)

        def end() -> None:
            served.lanes.watch.end_call(call)
            served.used_s += seconds
            outcomes = Outcomes([ROW] * len(work.jobs), 0)
            with served.change:
                ended = served.lanes._finish(lane, outcomes, self.now)
            self._at(self.now + served.model.gap_s, partial(served.idle.append, lane))
            self._settle(served, ended)

        self._at(self.now + seconds, end)

    def _settle(self, served: _Served, ended: list[QueuedRequest]) -> None:
        for request in ended:
            assert request.error is None, request.error
            served.answers += 1
            self._at(self.now + served.model.pause_s, partial(self._send, served))
