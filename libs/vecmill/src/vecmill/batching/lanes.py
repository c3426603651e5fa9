"""The lanes of one engine: worker threads that take batches from the queue and compute them.

How it works. Each lane is a thread. A free lane asks the policy for a batch, takes cores from the budget,
runs the engine without holding a lock, and hands the outcomes to the queue. Then it reports the requests that
ended. A batch is chosen only when a lane is free, so requests that arrive before then can still join it.

Width. If an idle lane finds all cores free and at most one batch waiting, it runs the batch wide, on all
cores. Any other call is narrow, on one core. So a single request uses the whole machine, and under load the
cores work in parallel without waiting for each other.

Losing lanes. A call that takes longer than `hang_s` is abandoned. A thread that ends before the lanes are
closed is dead. In both cases the lane is lost: its texts fail with `LaneLost`, its cores return to the
budget, and `is_degraded` stays true, so that a supervisor should replace the process. The other lanes
continue. When the last lane is lost, all waiting texts fail and no more requests are admitted.

The lock of the core budget guards the queue, the policy, the pace and the lanes. No slow work happens while
the lock is held.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vecmill.batching.change import Change
from vecmill.batching.containment import Outcomes, run_contained
from vecmill.batching.forecast import Forecast
from vecmill.batching.pace import Pace
from vecmill.batching.policy import Policy, is_long
from vecmill.batching.queue import Queue
from vecmill.batching.ticket import Job, QueuedRequest
from vecmill.config import MillConfig
from vecmill.engines.base import Engine
from vecmill.errors import LaneLost
from vecmill.hardware.budget import CoreBudget
from vecmill.values.batch import Batch
from vecmill.values.clock import Clock
from vecmill.values.embeddings import Embeddings
from vecmill.values.observer import BatchRecord, LaneState, Observer

logger = logging.getLogger(__name__)

JOIN_TIMEOUT_S = 5.0  # how long closing waits for a call that is still running

# A lane in one of these states is never used again.
LOST = frozenset({LaneState.HUNG, LaneState.DEAD})

# Told the requests that have ended, from any thread.
Settle = Callable[[list[QueuedRequest]], None]


@dataclass(eq=False, slots=True)
class Lane:
    """One worker thread and its state. Guarded by the lock.

    `width` is the number of cores of the running call, and `called_at` is the time when this call began.
    """

    number: int
    state: LaneState = LaneState.IDLE
    jobs: Sequence[Job] = ()
    width: int = 0
    called_at: float = 0.0
    thread: threading.Thread | None = None


@dataclass(frozen=True, slots=True)
class SealedBatch:
    """Jobs that one lane computes in one call on `width` cores.

    `waits_s` holds, for each text, the seconds from admission to now.
    """

    jobs: list[Job]
    width: int
    waits_s: tuple[float, ...]


class Lanes:
    """The lanes of one engine; see the module docstring."""

    def __init__(
        self,
        engine: Engine,
        config: MillConfig,
        queue: Queue,
        pace: Pace,
        *,
        budget: CoreBudget,
        observer: Observer,
        clock: Clock,
    ) -> None:
        self.change = Change(budget, queue, observer)
        self.pace = pace
        self.condition = budget.join(self._wants_core)
        self.all = [Lane(number) for number in range(engine.info.lanes_on(budget.total))]
        self.is_lost = False  # no lane is left
        self._queue = queue
        self.forecast = Forecast(queue, config, pace, cores=len(self.all) * engine.info.lane_widths[0])
        self._policy = Policy(config.batch, self.forecast)
        self._engine = engine
        self._config = config
        self._budget = budget
        self._observer = observer
        self._clock = clock
        self._closing = False
        self._settle: Settle = lambda _: None
        self._narrow, self._wide = engine.info.lane_widths[0], engine.info.lane_widths[-1]

    def start(self, settle: Settle) -> None:
        """Start the threads. They report ended requests to `settle`."""
        self._settle = settle
        for lane in self.all:
            self._observer.lane(lane.number, LaneState.IDLE)
            lane.thread = threading.Thread(
                target=self._work, args=(lane,), name=f"vecmill-lane-{lane.number}", daemon=True
            )
            lane.thread.start()

    @property
    def is_degraded(self) -> bool:
        """Whether a lane has been lost."""
        return any(lane.state in LOST for lane in self.all)

    def lose_hanging(self, now: float) -> list[QueuedRequest]:
        """Give up lanes whose calls take too long, and return the requests that ended as a result."""
        with self.change:
            hung = [lane for lane in self.all if self._hangs(lane, now)]
            ended = [request for lane in hung for request in self._lose(lane, LaneState.HUNG)]
            if hung:
                self._budget.wake_others(self.condition)
        for lane in hung:
            self._observer.lane(lane.number, LaneState.HUNG)
        return ended

    def end(self) -> None:
        """Let the threads end after their running calls. Call with the lock held."""
        self._closing = True
        self.condition.notify_all()

    def join(self) -> None:
        """Wait for the threads to end, for at most `JOIN_TIMEOUT_S` each. May be called twice."""
        for lane in self.all:
            if lane.thread is not None and lane.state not in LOST:
                lane.thread.join(JOIN_TIMEOUT_S)

    # On a lane's thread.

    def _work(self, lane: Lane) -> None:
        try:
            while (work := self._next_work(lane)) is not None:
                self._run(lane, work)
        except BaseException:  # whatever ends this thread must not take its texts with it
            logger.critical("lane %d died", lane.number, exc_info=True)
            with self.change:
                ended = self._lose(lane, LaneState.DEAD)
            self._observer.lane(lane.number, LaneState.DEAD)
            self._settle(ended)

    def _next_work(self, lane: Lane) -> SealedBatch | None:
        """Wait for a batch and a free core, and return the batch; `None` ends the lane."""
        was_idle = False
        with self.change:
            while lane.state is not LaneState.HUNG:
                if self._queue.is_empty:
                    if self._closing:
                        return None
                    was_idle = True
                elif self._budget.may_take(self._narrow, self.condition) and (
                    work := self._seal(lane, was_idle)
                ):
                    return work
                lane.state = LaneState.IDLE
                self.condition.wait()
        return None

    def _seal(self, lane: Lane, was_idle: bool) -> SealedBatch | None:
        """Choose a batch and take it from the queue; `None` if nothing that waits may run now.

        The caller holds the lock.
        """
        now = self._clock()
        overdue = self._queue.expire(now)
        overdue += self._queue.give_up(self.forecast.hopeless(now), now)
        if overdue:
            self._settle(overdue)
            self._budget.wake_others(self.condition)
        if self._queue.is_empty:
            return None
        width = self._choose_width(was_idle)
        lanes = 1 if width > self._narrow else len(self.all)
        jobs = self._policy.choose(self._queue, lanes=lanes, now=now, allow_long=self._may_run_long())
        if not jobs:
            return None
        waits_s = tuple(now - job.arrived_at for job in jobs)
        self._queue.take(jobs, now)
        self._budget.take(width, self.condition, sum(job.cost_s for job in jobs))
        lane.state, lane.jobs, lane.width, lane.called_at = LaneState.BUSY, jobs, width, now
        if self._budget.free >= self._narrow:
            if self._queue.work_tokens:
                self.condition.notify()
            self._budget.wake_others(self.condition)
        return SealedBatch(jobs, width, waits_s)

    def _choose_width(self, was_idle: bool) -> int:
        alone = was_idle and self._budget.free == self._budget.total
        small = self._queue.work_tokens <= self._config.batch.batch_tokens
        return self._wide if alone and small and self._wide <= self._budget.free else self._narrow

    def _run(self, lane: Lane, work: SealedBatch) -> None:
        self._observer.lane(lane.number, LaneState.BUSY)
        started_at = self._clock()

        def call(batch: Batch) -> Embeddings:
            lane.called_at = self._clock()
            return self._engine.run(batch, width=work.width)

        outcomes = run_contained(call, [job.sequence for job in work.jobs])
        finished_at = self._clock()
        with self.change:
            if lane.state is LaneState.HUNG:  # given up meanwhile; its texts have their answers
                return
            self.pace.measure([job.tokens for job in work.jobs], work.width, finished_at - started_at)
            ended = self._finish(lane, outcomes, finished_at)
        self._settle(ended)
        self._observer.batch_done(
            BatchRecord(
                texts=len(work.jobs),
                tokens=sum(job.tokens for job in work.jobs),
                computed_tokens=outcomes.computed_tokens,
                lane_width=work.width,
                inference_s=finished_at - started_at,
                waits_s=work.waits_s,
            )
        )
        self._observer.lane(lane.number, LaneState.IDLE)

    def _finish(self, lane: Lane, outcomes: Outcomes, now: float) -> list[QueuedRequest]:
        pairs = zip(lane.jobs, outcomes.outcomes, strict=True)
        ended = [request for job, outcome in pairs for request in self._queue.finish(job, outcome, now)]
        self._release(lane, LaneState.IDLE)
        return ended

    # On any thread, lock held.

    def _hangs(self, lane: Lane, now: float) -> bool:
        return lane.state is LaneState.BUSY and now - lane.called_at > self._config.hang_s

    def _wants_core(self) -> bool:
        """Return whether a lane could take a batch if it had a core."""
        if not any(lane.state is LaneState.IDLE for lane in self.all):
            return False
        return self._policy.has_work(self._queue, allow_long=self._may_run_long())

    def _may_run_long(self) -> bool:
        """Return whether another lane stays free of long calls if one more begins."""
        lanes = [lane for lane in self.all if lane.state not in LOST]
        long_calls = sum(any(map(is_long, lane.jobs)) for lane in lanes)
        return len(lanes) == 1 or long_calls < len(lanes) - 1

    def _release(self, lane: Lane, state: LaneState) -> None:
        self._budget.give_back(lane.width)
        lane.state, lane.jobs, lane.width = state, (), 0

    def _lose(self, lane: Lane, state: LaneState) -> list[QueuedRequest]:
        """Give up `lane` and fail its texts; if it was the last lane, fail all waiting texts too."""
        error = LaneLost("The worker that computed this text is lost. Another server may answer.")
        now = self._clock()
        ended = [request for job in lane.jobs for request in self._queue.finish(job, error, now)]
        self._release(lane, state)
        if all(other.state in LOST for other in self.all):
            self.is_lost = True
            ended += self._queue.fail_all(error, now)
        return ended
