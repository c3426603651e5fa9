"""The lanes of one engine: worker threads that take batches from the queue and compute them.

How it works. Each lane is a thread. A free lane asks the policy for a batch, takes cores from the budget,
runs the engine without holding a lock, and hands the outcomes to the queue. Then it reports the requests that
ended. A batch is chosen only when a lane is free, so requests that arrive before then can still join it.

Width. A single request uses the whole machine, and under load the cores work in parallel (`call_width`).

Losing lanes. A lane is lost if its call hangs (`lane`) or its thread ends before the lanes are closed. Its
texts fail with `LaneLost`, and its cores return to the budget at once: most hung calls wait for something and
do not compute, and a wide call would keep all cores from the other lanes. Time in which the process stood
still does not count (`running_clock`). A lost lane comes back in one of two ways:

- Its call returns. The outcome is dropped, since the texts have their answers.
- A new thread takes its place: at once if the old thread has ended or no other lane works, else when the call
  has taken twice its limit. If a call hung, the engine first makes new sessions. The old thread ends when its
  call returns.

A lane is not replaced after `DeviceLost`, and not without end (`MAX_REPLACEMENTS`, `MAX_STUCK`). While no
lane works and none may be replaced, `is_lost` is true: all waiting texts fail, no request is admitted, and
the process should be replaced.

The lock of the core budget guards the queue, the policy, the pace and the lanes. No slow work happens while
the lock is held.
"""

import logging
import threading
from collections.abc import Callable

from vecmill.batching.call_width import CallWidth
from vecmill.batching.change import Change
from vecmill.batching.containment import Outcomes, run_contained
from vecmill.batching.forecast import Forecast
from vecmill.batching.lane import MAX_STUCK, REPLACE_FACTOR, EngineCall, Lane, Renewal
from vecmill.batching.lane_reports import LaneReports
from vecmill.batching.memory_limit import MemoryLimit
from vecmill.batching.pace import Pace
from vecmill.batching.policy import Policy, is_long
from vecmill.batching.queue import Queue
from vecmill.batching.running_clock import RunningClock
from vecmill.batching.sealed_batch import SealedBatch, begin_timeline
from vecmill.batching.ticket import QueuedRequest
from vecmill.config import MillConfig
from vecmill.engines.base import Engine
from vecmill.errors import DeviceLost, LaneLost
from vecmill.hardware.budget import CoreBudget
from vecmill.values.batch import Batch
from vecmill.values.clock import Clock
from vecmill.values.embeddings import Embeddings
from vecmill.values.observer import LaneState, Observer

logger = logging.getLogger(__name__)

JOIN_TIMEOUT_S = 5.0  # how long closing waits for calls that are still running

# Told the requests that have ended, from any thread.
Settle = Callable[[list[QueuedRequest]], None]


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
        self.is_lost = False  # no lane works, and none may be replaced
        self._queue = queue
        widths = engine.info.lane_widths
        self._narrow, self._wide = widths[0], widths[-1]
        cores, wide = len(self.all) * self._narrow, self._wide // self._narrow
        self.forecast = Forecast(queue, config, pace, cores=cores, wide=wide)
        self._policy = Policy(config.batch, self.forecast, pace)
        self._call_width = CallWidth(engine.info, budget, queue, self._policy, self.all)
        self._engine = engine
        self._config = config
        self._budget = budget
        self._observer = observer
        self._clock = clock
        self._running_clock = RunningClock(clock)
        self._stuck: set[Lane] = set()  # replaced lanes whose calls have not returned
        self._reports = LaneReports(observer, self.all)
        self._memory = MemoryLimit()
        self._closing = False
        self._settle: Settle = lambda _: None

    def start(self, settle: Settle) -> None:
        """Start the threads. They report ended requests to `settle`."""
        self._settle = settle
        for lane in self.all:
            self._reports.report(lane.number)
            self._start_thread(lane, None)

    @property
    def batch_tokens(self) -> int:
        """The tokens of a full batch, as the measurements are now."""
        return self._policy.batch_size.tokens

    @property
    def is_degraded(self) -> bool:
        """Whether a lane is lost now."""
        return any(lane.is_lost for lane in self.all)

    @property
    def need_ticks(self) -> bool:
        """Whether a call runs that may hang, or a lost lane may be replaced later."""
        return any(
            lane.state is LaneState.BUSY or (lane.is_lost and self._may_replace(lane)) for lane in self.all
        )

    def expect_tick(self, due_at: float) -> None:
        """Set the time when `tick` will be called next, on the clock of the lanes."""
        with self._budget.lock:
            self._running_clock.expect_tick(due_at)

    def tick(self) -> list[QueuedRequest]:
        """Give up lanes that hang, replace lost lanes, and return the requests that ended as a result."""
        with self.change:
            if stood_still_s := self._running_clock.tick():
                self._reports.note(f"The process stood still for {stood_still_s:.1f} s.")
            ended = []
            for lane in self.all:
                if lane.has_no_thread and not self._closing:
                    ended += self._lose(lane, LaneState.DEAD)
                elif lane.state is LaneState.BUSY and self._exceeds_limit(lane):
                    ended += self._lose(lane, LaneState.HUNG)
            ended += self._recover()
            self._budget.wake_others(self.condition)
        self._reports.publish()
        return ended

    def end(self) -> None:
        """Let the threads end after their running calls. Call with the lock held."""
        self._closing = True
        self.condition.notify_all()

    def join(self) -> None:
        """Wait for the threads to end, for at most `JOIN_TIMEOUT_S`. May be called twice."""
        until = self._clock() + JOIN_TIMEOUT_S
        for lane in self.all:
            if lane.thread is not None and not lane.is_lost:
                lane.thread.join(max(0.0, until - self._clock()))

    # On a lane's thread.

    def _work(self, lane: Lane, renewal: Renewal | None) -> None:
        try:
            if renewal is not None:
                renewal()
                if not self._return(lane):
                    return
            while (work := self._next_work(lane)) is not None and self._run(lane, work):
                del work  # it refers to requests, which hold their embeddings
        except BaseException as error:  # whatever ends this thread must not take its texts with it
            self._bury(lane, error)

    def _next_work(self, lane: Lane) -> SealedBatch | None:
        """Wait for a batch and a free core, and return the batch; `None` ends the lane."""
        was_idle = False
        with self.change:
            while True:
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
        width = cores = self._call_width.choose(was_idle=was_idle)
        lanes = 1 if width > self._narrow else len(self.all)
        jobs = self._policy.choose(
            self._queue, lanes=lanes, now=now, allow_long=self._call_width.may_run_long()
        )
        if not jobs:
            return None
        has_long_text = any(map(is_long, jobs))
        if has_long_text and self._call_width.may_borrow():
            width, cores = self._wide, self._wide - self._narrow
        waits_s = tuple(now - job.arrived_at for job in jobs)
        timeline = None
        if self._observer.needs_timelines:
            timeline = begin_timeline(jobs, lane.number, width, now)
        self._queue.take(jobs, now, timeline)
        lane.state, lane.jobs, lane.called_at = LaneState.BUSY, jobs, now
        lane.cores, lane.borrowed, lane.has_long_text = cores, width - cores, has_long_text
        cost_s = sum(job.cost_s for job in jobs)
        self._budget.take(cores, self.condition, cost_s, borrowed=lane.borrowed, is_long=lane.has_long_text)
        if self._budget.free >= self._narrow:
            if self._queue.work_tokens:
                self.condition.notify()
            self._budget.wake_others(self.condition)
        return SealedBatch(jobs, width, waits_s, timeline)

    def _run(self, lane: Lane, work: SealedBatch) -> bool:
        """Compute a batch and hand out its outcomes. Return false if another lane has replaced this one."""
        self._reports.report(lane.number)
        started_at = lane.called_at
        try:
            outcomes = run_contained(
                lambda batch: self._call(lane, batch, work),
                [job.sequence for job in work.jobs],
                self._memory,
            )
        except LaneLost:
            return self._return(lane)
        finished_at = self._clock()
        work.end(outcomes, finished_at)
        with self.change:
            was_given_up = lane.is_lost
            ended = [] if was_given_up else self._finish(lane, outcomes, finished_at)
        if was_given_up:  # its texts have their answers
            return self._return(lane)
        self._settle(ended)
        self._observer.batch_done(work.record(outcomes, finished_at - started_at))
        self._reports.report(lane.number)
        return True

    def _call(self, lane: Lane, batch: Batch, work: SealedBatch) -> Embeddings:
        """Call the engine, and measure the call unless the process stood still meanwhile.

        Raises `LaneLost` if the lane was given up.
        """
        with self._budget.lock:
            if lane.is_lost:
                raise LaneLost("The lane was given up.")
            lengths = batch.lengths.tolist()
            predicted_s = self.pace.call_s(lengths, work.width)
            overlaps = -1 if self._budget.is_shared else self._budget.overlaps
            call = EngineCall(self._running_clock(), lengths, work.width, predicted_s, overlaps)
            lane.call = call
            stood_still_s = self._running_clock.stood_still_s
        embeddings = work.call(self._engine, batch, self._clock)
        with self._budget.lock:
            if self._running_clock.stood_still_s == stood_still_s and not self._has_shared(call):
                seconds = self._running_clock() - call.began_at
                if work.width == self._narrow:
                    self._policy.batch_size.measure(lengths, seconds)
                self.pace.measure(lengths, work.width, seconds)
        return embeddings

    def _return(self, lane: Lane) -> bool:
        """Make a lane that was given up, or has made new sessions, work again.

        Return false if another lane has replaced it.
        """
        with self.change:
            self._stuck.discard(lane)
            is_current = self.all[lane.number] is lane
            if lane.is_lost:
                end = "works again" if is_current else "was replaced, and its thread ends"
                self._reports.note(
                    f"Lane {lane.number} {end}: its call has returned{self._describe_call(lane)}."
                )
            if is_current:
                lane.state, lane.call, self.is_lost = LaneState.IDLE, None, False
                self._count_cores()
        self._reports.publish()
        self._reports.report(lane.number)
        return is_current

    def _bury(self, lane: Lane, error: BaseException) -> None:
        """Report that the thread of `lane` ends with `error`, and replace the lane."""
        with self.change:
            self._stuck.discard(lane)
            ended = []
            if self.all[lane.number] is lane:
                ended = self._lose(lane, LaneState.DEAD)
                if isinstance(error, DeviceLost):
                    lane.forbid_replacement()
                ended += self._recover()
        self._settle(ended)
        self._reports.publish()
        logger.critical("lane %d died", lane.number, exc_info=error)

    def _finish(self, lane: Lane, outcomes: Outcomes, now: float) -> list[QueuedRequest]:
        pairs = zip(lane.jobs, outcomes.outcomes, strict=True)
        ended = [request for job, outcome in pairs for request in self._queue.finish(job, outcome, now)]
        self._release(lane, LaneState.IDLE)
        lane.call, lane.replacements = None, 0
        return ended

    # On any thread, lock held.

    def _exceeds_limit(self, lane: Lane, times: float = 1.0) -> bool:
        """Return whether the call of `lane` has taken more than so many times its limit."""
        if lane.call is None:
            return False
        elapsed_s = self._running_clock() - lane.call.began_at
        is_shared = self._has_shared(lane.call)
        return elapsed_s > times * lane.call.limit_s(self._config.hang_s, is_shared=is_shared)

    def _has_shared(self, call: EngineCall) -> bool:
        """Return whether another call has computed on a core of `call`."""
        return call.overlaps != self._budget.overlaps

    def _describe_call(self, lane: Lane) -> str:
        return "" if lane.call is None else f" ({lane.call.describe(self._running_clock())})"

    def _wants_core(self) -> bool:
        """Return whether a lane could take a batch if it had a core."""
        if not any(lane.state is LaneState.IDLE for lane in self.all):
            return False
        return self._policy.has_work(self._queue, allow_long=self._call_width.may_run_long())

    def _release(self, lane: Lane, state: LaneState) -> None:
        self._budget.give_back(lane.cores, borrowed=lane.borrowed, is_long=lane.has_long_text)
        lane.state, lane.jobs, lane.cores, lane.borrowed, lane.has_long_text = state, (), 0, 0, False

    def _lose(self, lane: Lane, state: LaneState) -> list[QueuedRequest]:
        """Give up `lane` and fail its texts. Call `_recover` before the lock is released."""
        error = LaneLost("The worker that computed this text is lost. Another server may answer.")
        now = self._clock()
        ended = [request for job in lane.jobs for request in self._queue.finish(job, error, now)]
        self._reports.note(
            f"Lane {lane.number} is {state}{self._describe_call(lane)}. Its {len(lane.jobs)} texts fail."
        )
        self._release(lane, state)
        return ended

    def _recover(self) -> list[QueuedRequest]:
        """Replace lost lanes that are due. If no lane works then, fail all waiting texts."""
        renewal = Renewal(self._engine.renew)
        for lane in tuple(self.all):
            works = any(not other.is_lost for other in self.all)
            is_due = lane.state is LaneState.DEAD or not works or self._exceeds_limit(lane, REPLACE_FACTOR)
            if lane.is_lost and is_due and self._may_replace(lane):
                self._replace(lane, renewal if lane.state is LaneState.HUNG else None)
        self.is_lost = all(lane.is_lost for lane in self.all)
        self._count_cores()
        if not self.is_lost:
            return []
        error = LaneLost("Every worker of this server is lost. It has to be restarted.")
        return self._queue.fail_all(error, self._clock())

    def _count_cores(self) -> None:
        """Tell the forecast the number of cores on which lanes work; without a lane nothing is admitted."""
        working = sum(not lane.is_lost for lane in self.all)
        self.forecast.cores = max(1, working) * self._narrow

    def _may_replace(self, lane: Lane) -> bool:
        too_many = lane.state is LaneState.HUNG and len(self._stuck) >= MAX_STUCK * len(self.all)
        return lane.may_be_replaced and not too_many and not self._closing

    def _replace(self, lane: Lane, renewal: Renewal | None) -> None:
        successor = Lane(lane.number, replacements=lane.replacements + 1)
        if renewal is not None:
            successor.state, successor.call = LaneState.BUSY, EngineCall(self._running_clock())
        try:
            self._start_thread(successor, renewal)
        except (RuntimeError, MemoryError) as error:
            self._reports.note(f"Lane {lane.number} cannot be replaced now: {error}.")
            return
        self.all[lane.number] = successor
        if lane.state is LaneState.HUNG:
            self._stuck.add(lane)
        self._reports.note(
            f"Lane {lane.number} is replaced by a new thread, {successor.replacements} in a row"
            f"{self._describe_call(lane)}."
        )

    def _start_thread(self, lane: Lane, renewal: Renewal | None) -> None:
        lane.thread = threading.Thread(
            target=self._work, args=(lane, renewal), name=f"vecmill-lane-{lane.number}", daemon=True
        )
        lane.thread.start()
