"""The lanes of one engine: worker threads that take batches from the scheduler and compute them.

How it works. Each lane is a thread. A free lane takes a batch from the scheduler and cores from the budget,
runs the engine without holding a lock, and hands the outcomes to the scheduler. Then it reports the requests
that ended. A batch is chosen only when a lane is free, so requests that arrive before then can still join it.

Failures. A call that raises anything is tried again in halves, until the texts that cause it are found
(`containment`). If something else raises, the texts of the batch fail. In both cases the thread goes on. Only
`DeviceLost` ends it. A lane whose call hangs is given up (`lane_watch`).

The lock of the core budget guards the scheduler and the lanes. No slow work happens while the lock is held.
"""

import logging
import threading
from collections.abc import Callable
from functools import partial

from vecmill.batching.change import Change, tell
from vecmill.batching.containment import MemoryLimit, Outcomes, run_contained
from vecmill.batching.lane_watch import LOST, Lane, LaneWatch, Renewal
from vecmill.batching.prefixes import computed_lengths
from vecmill.batching.scheduler import Cores, Scheduler, SealedBatch
from vecmill.batching.ticket import QueuedRequest
from vecmill.engines.base import Engine
from vecmill.errors import DeviceLost, InferenceFailed, LaneLost, VecmillError
from vecmill.hardware.denormals import flush_denormals
from vecmill.values.batch import Batch
from vecmill.values.clock import Clock
from vecmill.values.embeddings import Embeddings
from vecmill.values.observer import BatchRecord, EngineTimes, LaneState

logger = logging.getLogger(__name__)

JOIN_TIMEOUT_S = 5.0  # how long closing waits for calls that are still running

# Told the requests that have ended, from any thread.
Settle = Callable[[list[QueuedRequest]], None]


class Lanes:
    """The lanes of one engine; see the module docstring."""

    def __init__(
        self,
        engine: Engine,
        scheduler: Scheduler,
        change: Change,
        settle: Settle,
        *,
        clock: Clock,
        hang_s: float,
        first: int = 0,
    ) -> None:
        """`change` guards the scheduler. `settle` is told the requests that have ended.

        `first` is the number of the first lane.
        """
        self._budget = change.budget
        self.all = [Lane(first + index) for index in range(engine.info.lanes_on(self._budget.total))]
        self._engine = engine
        self._scheduler = scheduler
        self._queue = scheduler.queue
        self._change = change
        self._settle = settle
        self._narrow = engine.info.lane_widths[0]
        self._observer = change.observer
        self._clock = clock
        self._memory = MemoryLimit()
        self._closing = False
        self.watch = LaneWatch(
            self.all,
            scheduler,
            change,
            clock=clock,
            hang_s=hang_s,
            renew=engine.renew,
            start_thread=self._start_thread,
        )
        with self._budget.lock:
            # Notified when a lane should look for work.
            self.condition = self._budget.join(
                self._wants_core,
                weight=scheduler.core_weight,
                clock=self.watch.running_clock,
                waiting=lambda: scheduler.waiting_work,
            )

    def start(self) -> None:
        """Start the threads."""
        for lane in self.all:
            self.watch.report(lane.number)
            self._start_thread(lane, None)

    @property
    def is_degraded(self) -> bool:
        """Whether a lane is lost now."""
        return any(lane.is_lost for lane in self.all)

    def tick(self) -> list[QueuedRequest]:
        """Give up lanes that hang, replace lost lanes, and return the requests that ended as a result."""
        ended = self.watch.tick()
        with self._budget.lock:
            self._budget.wake_others(self.condition)
        return ended

    def end(self) -> None:
        """Let the threads end after their running calls. Call with the lock held."""
        self._closing = self.watch.is_closing = True
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
            flush_denormals()
            if renewal is not None and not self._renew(lane, renewal):
                return
            was_idle = True
            while self._compute_next(lane, was_idle=was_idle):
                was_idle = False
        except BaseException as error:  # whatever ends this thread must not take its texts with it
            self._settle(self.watch.bury(lane, error))

    def _renew(self, lane: Lane, renewal: Renewal) -> bool:
        """Make new sessions. Return false if another lane has replaced this one meanwhile."""
        try:
            renewal()
        except DeviceLost:
            raise
        except BaseException:  # the present sessions may work, and else the lane is given up again
            logger.exception("Lane %d goes on without new sessions.", lane.number)
        return self.watch.take_back(lane)

    def _compute_next(self, lane: Lane, *, was_idle: bool) -> bool:
        """Wait for a batch and compute it. Return false if the thread has to end."""
        try:
            work = self._next_work(lane, was_idle=was_idle)
            return work is not None and self._run(lane, work)
        except DeviceLost:
            raise
        except BaseException as error:
            return self._fail(lane, error)

    def _next_work(self, lane: Lane, *, was_idle: bool) -> SealedBatch | None:
        """Wait for a batch and a free core, and return the batch; `None` ends the lane."""
        with self._change:
            while True:
                if not self._queue.work_texts:
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
        """Take a batch from the scheduler, and its cores; `None` if nothing that waits may run now.

        The caller holds the lock.
        """
        now = self._clock()
        overdue = self._queue.expire(now) + self._scheduler.give_up_hopeless(now)
        if overdue:
            self._settle(overdue)
            self._budget.wake_others(self.condition)
        timeline_of = lane.number if self._observer.needs_timelines else None
        work = self._scheduler.take(self._cores(), now, was_idle=was_idle, timeline_of=timeline_of)
        if work is None:
            return None
        lane.state, lane.jobs, lane.called_at = LaneState.BUSY, work.jobs, now
        lane.taken = self._budget.take(
            work.cores,
            self.condition,
            work.call_s,
            cost_s=work.cost_s,
            borrowed=work.width - work.cores,
            is_long=work.has_long_text,
        )
        if self._budget.free >= self._narrow:
            if self._queue.work_texts:
                self.condition.notify()
            self._budget.wake_others(self.condition)
        return work

    def _run(self, lane: Lane, work: SealedBatch) -> bool:
        """Compute a batch and hand out its outcomes. Return false if another lane has replaced this one."""
        self.watch.report(lane.number)
        started_at = lane.called_at
        try:
            run = partial(self._call, lane, work)
            outcomes = run_contained(run, [job.sequence for job in work.jobs], self._memory)
        except LaneLost:
            return self.watch.take_back(lane)
        finished_at = self._clock()
        if work.timeline is not None:
            work.timeline.failed_texts = sum(isinstance(one, VecmillError) for one in outcomes.outcomes)
            work.timeline.ended_at = finished_at
        with self._change:
            was_given_up = lane.is_lost
            ended = [] if was_given_up else self._finish(lane, outcomes, finished_at)
        if was_given_up:  # its texts have their answers
            return self.watch.take_back(lane)
        if not work.is_own:
            record = BatchRecord(
                texts=len(work.jobs),
                tokens=work.tokens,
                computed_tokens=outcomes.computed_tokens,
                inference_s=finished_at - started_at,
                waits_s=work.waits_s,
                timeline=work.timeline,
            )
            tell(self._observer.batch_done, record)
        self.watch.report(lane.number)
        self._settle(ended)  # last: the event loop would only wait for the interpreter lock
        return True

    def _call(self, lane: Lane, work: SealedBatch, batch: Batch) -> Embeddings:
        """Call the engine, and measure the call. Raises `LaneLost` if the lane was given up."""
        # A part of a batch that failed is predicted as if its texts had nothing in common.
        is_whole = len(batch) == len(work.jobs)
        lengths = computed_lengths(work.jobs) if is_whole else batch.lengths.tolist()
        call = self.watch.begin_call(lane, lengths, work.width)
        began_at = self._clock()
        try:
            embeddings = self._engine.run(batch, width=work.width)
        finally:
            if work.timeline is not None:
                work.timeline.calls.append(EngineTimes(began_at, self._clock(), len(batch)))
        self.watch.end_call(call)
        return embeddings

    def _finish(self, lane: Lane, outcomes: Outcomes, now: float) -> list[QueuedRequest]:
        ended = self._scheduler.finish(lane.jobs, outcomes.outcomes, now)
        lane.release(self._budget, LaneState.IDLE)
        lane.call = None
        return ended

    def _fail(self, lane: Lane, error: BaseException) -> bool:
        """Fail the batch of `lane`, because something beside the call raised `error`.

        If no batch was taken, nothing that waits can be, and all waiting texts fail. Return false if another
        lane has replaced this one.
        """
        logger.critical("Lane %d failed beside its call.", lane.number, exc_info=error)
        failure = InferenceFailed("The computation of this text failed. The log says more.")
        with self._change:
            was_given_up, now = lane.is_lost, self._clock()
            ended: list[QueuedRequest] = []
            if lane.state is LaneState.BUSY:
                ended = self._scheduler.fail(lane.jobs, failure, now)
                lane.release(self._budget, LaneState.IDLE)
                lane.call = None
            elif not was_given_up:
                ended = self._queue.fail_all(failure, now)
        if was_given_up:
            return self.watch.take_back(lane)
        self._settle(ended)
        self.watch.report(lane.number)
        return True

    # On any thread.

    def _wants_core(self) -> bool:
        """Return whether a lane could take a batch if it had a core. The caller holds the lock."""
        if not self._queue.work_texts:
            return False
        for lane in self.all:
            if lane.state is LaneState.IDLE:
                return self._scheduler.may_take(self._cores())
        return False

    def _cores(self) -> Cores:
        working = long_lanes = 0
        for lane in self.all:
            if lane.state not in LOST:
                working += 1
                long_lanes += lane.taken is not None and lane.taken.is_long
        budget = self._budget
        return Cores(budget.free, budget.total, budget.long_cores, working, long_lanes)

    def _start_thread(self, lane: Lane, renewal: Renewal | None) -> None:
        lane.thread = threading.Thread(
            target=self._work, args=(lane, renewal), name=f"vecmill-lane-{lane.number}", daemon=True
        )
        lane.thread.start()
