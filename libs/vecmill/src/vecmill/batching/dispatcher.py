"""The dispatcher between the event loop and the lanes, which compute the requests.

How it works. `submit` runs on the event loop: it admits a request to the queue and waits on a future. Each
lane is a thread. A free lane asks the policy for a batch, takes cores from the budget, runs the engine
without holding a lock, and hands the outcomes to the queue. Once per batch, it tells the event loop which
requests have ended. A batch is chosen only when a lane is free, so requests that arrive before then can still
join the batch.

Width. If an idle lane finds all cores free and at most one batch waiting, it runs the batch wide, on all
cores. Any other call is narrow, on one core. So a single request uses the whole machine, and under load the
cores work in parallel without waiting for each other.

Losing lanes. A call that takes longer than `hang_s` is abandoned. A thread that ends before the dispatcher is
closed is dead. In both cases the lane is lost: its texts fail with `LaneLost`, its cores return to the
budget, and the dispatcher stays degraded (`is_degraded`), so that its supervisor should replace the process.
The other lanes continue. When the last lane is lost, all waiting texts fail and no more requests are
admitted.

Rules:
1. `_budget.lock` guards the queue, the policy and the lanes. No slow work happens while the lock is held.
2. Futures are touched on the event loop only.
3. One timer serves deadlines and hanging calls. It is set only while texts are waiting or running, so an idle
   dispatcher uses no processor time.
"""

import asyncio
import logging
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vecmill.batching.containment import Outcomes, run_contained
from vecmill.batching.lane import LOST, Lane, SealedBatch
from vecmill.batching.policy import Policy
from vecmill.batching.queue import CountsSnapshot, Queue, Room
from vecmill.batching.ticket import QueuedRequest
from vecmill.config import MillConfig
from vecmill.engines.base import Engine
from vecmill.errors import LaneLost, QueueFull, RequestTooLarge, ShuttingDown
from vecmill.hardware.budget import CoreBudget
from vecmill.requests import Priority
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.clock import Clock, monotonic
from vecmill.values.embeddings import Embeddings
from vecmill.values.observer import BatchRecord, LaneState, Observer, Rejection

logger = logging.getLogger(__name__)

TICK_S = 1.0  # how often hangs are looked for while something runs
JOIN_TIMEOUT_S = 5.0  # how long closing waits for a call that is still running
PACE_MEMORY = 0.9  # how much of the old pace a new measurement leaves


@dataclass(frozen=True, slots=True)
class Backlog:
    """The waiting work, and the measured time to compute it."""

    texts: int
    tokens: int
    seconds: float


class _Change:
    """A context that holds the lock and afterwards reports the changed counts of texts to the observer.

    All threads share one instance.
    """

    def __init__(self, budget: CoreBudget, queue: Queue, observer: Observer) -> None:
        self._lock = budget.lock
        self._counts = queue.counts
        self._reports = (
            observer.joined,
            observer.done,
            observer.failed,
            observer.expired,
            observer.cancelled,
        )
        self._reported = self._counts.changing

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        before, after = self._reported, self._counts.changing
        self._reported = after
        self._lock.release()
        if after != before:
            for report, old, new in zip(self._reports, before, after, strict=True):
                if new != old:
                    report(new - old)


class Dispatcher:
    """The dispatcher of one engine; see the module docstring. Use from one event loop."""

    def __init__(
        self,
        engine: Engine,
        config: MillConfig,
        *,
        budget: CoreBudget,
        observer: Observer,
        pace: float,
        clock: Clock = monotonic,
    ) -> None:
        """`pace` is the expected speed in tokens per second and core. Every batch corrects this value."""
        self.queue = Queue(config.queue)
        self._policy = Policy(config.batch)
        self._engine = engine
        self._config = config
        self._budget = budget
        self._observer = observer
        self._clock = clock
        self._condition = budget.join(self._oldest)
        self._pace = pace
        self._is_lost = False  # no lane is left
        self._change = _Change(budget, self.queue, observer)
        self._closing = False
        self._futures: dict[QueuedRequest, asyncio.Future[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: tuple[float, asyncio.Handle] | None = None  # and when it is due
        self._narrow, self._wide = engine.info.lane_widths[0], engine.info.lane_widths[-1]
        self.lanes = [Lane(number) for number in range(engine.info.lanes_on(budget.total))]

    def start(self) -> None:
        """Start the lanes. Call it on the event loop that will call `submit`."""
        self._loop = asyncio.get_running_loop()
        for lane in self.lanes:
            self._observer.lane(lane.number, LaneState.IDLE)
            lane.thread = threading.Thread(
                target=self._work, args=(lane,), name=f"vecmill-lane-{lane.number}", daemon=True
            )
            lane.thread.start()

    @property
    def is_degraded(self) -> bool:
        """Whether a lane has been lost."""
        return any(lane.state in LOST for lane in self.lanes)

    @property
    def backlog(self) -> Backlog:
        """The waiting work."""
        tokens = self.queue.work_tokens
        seconds = tokens / (self._pace * self._budget.total)
        return Backlog(self.queue.waiting_texts, self.queue.waiting_tokens, seconds)

    def counts_snapshot(self) -> CountsSnapshot:
        """Return all counts of texts as they are at one moment."""
        with self._budget.lock:
            return self.queue.snapshot()

    def refuse_if_full(self) -> None:
        """Raise the error that `submit` would raise for the smallest request. Takes almost no time."""
        self._refuse_unless_room(1, 1)

    async def submit(
        self, sequences: Sequence[TokenSequence], *, priority: Priority, timeout_s: float
    ) -> QueuedRequest:
        """Admit `sequences` together and wait until all are computed.

        Raises `RequestTooLarge`, `QueueFull`, `ShuttingDown` or `LaneLost` if the request is not admitted,
        and `DeadlineExceeded`, `EngineError` or `LaneLost` if an admitted request fails. Cancelling the call
        removes the texts from the queue.
        """
        assert self._loop is not None, "start() comes first"
        tokens = sum(map(len, sequences))
        now = self._clock()
        with self._change:
            self._refuse_unless_room(len(sequences), tokens)
            request = self.queue.admit(sequences, priority=priority, now=now, deadline=now + timeout_s)
            future = self._futures[request] = self._loop.create_future()
            self._condition.notify()
        try:
            self._observer.admitted(len(sequences), tokens)
            self._arm_timer()
            await future
        except BaseException:  # nobody waits for it any more
            with self._change:
                self.queue.cancel(request, self._clock())
                self._budget.wake_others(self._condition)
            raise
        finally:
            del self._futures[request]
        if request.error is not None:
            raise request.error
        return request

    async def close(self) -> None:
        """Fail all waiting texts with `ShuttingDown`, let running calls finish, and end the lanes.

        May be called twice.
        """
        if self._closing:
            return
        with self._change:
            self._closing = True
            ended = self.queue.fail_all(ShuttingDown("The server is shutting down."), self._clock())
            self._condition.notify_all()
            self._budget.wake_others(self._condition)
        self._resolve(ended)
        if self._timer is not None:
            self._timer[1].cancel()
        await asyncio.to_thread(self._join)
        self._budget.leave(self._condition)

    def tick(self) -> None:
        """End requests past their deadline, and give up lanes that hang.

        The timer calls this on the event loop.
        """
        now = self._clock()
        with self._change:
            ended = self.queue.expire(now)
            hung = [lane for lane in self.lanes if self._hangs(lane, now)]
            for lane in hung:
                ended += self._lose(lane, LaneState.HUNG)
            self._budget.wake_others(self._condition)
        for lane in hung:
            self._observer.lane(lane.number, LaneState.HUNG)
        self._resolve(ended)
        self._timer = None
        if self.queue.open_texts:
            self._arm_timer()

    # On the event loop.

    def _refuse_unless_room(self, texts: int, tokens: int) -> None:
        if self._closing:
            self._observer.rejected(Rejection.SHUTTING_DOWN)
            raise ShuttingDown("The server is shutting down. Another one may answer.")
        if self._is_lost:
            self._observer.rejected(Rejection.NOT_READY)
            raise LaneLost("Every worker of this server is lost. It has to be restarted.")
        room = self.queue.room_for(texts, tokens)
        if room is Room.NEVER:
            self._observer.rejected(Rejection.TOO_LARGE)
            limits = self._config.queue
            raise RequestTooLarge(
                f"The request has {texts} texts with {tokens} tokens; this server never holds more than "
                f"{limits.max_queue_texts} texts and {limits.max_queue_tokens} tokens. Send it in parts."
            )
        if room is Room.FULL:
            self._observer.rejected(Rejection.QUEUE_FULL)
            raise QueueFull(
                "The server has as much waiting as it accepts. Try again later.",
                retry_after_s=max(self.backlog.seconds, 0.05),
            )

    def _resolve(self, requests: Iterable[QueuedRequest]) -> None:
        for request in requests:
            future = self._futures.get(request)
            if future is not None and not future.done():
                future.set_result(None)

    def _arm_timer(self) -> None:
        assert self._loop is not None
        deadline = self.queue.next_deadline()
        delay_s = TICK_S if deadline is None else max(0.0, min(TICK_S, deadline - self._clock()))
        when = self._loop.time() + delay_s
        if self._timer is not None:
            if self._timer[0] <= when:  # uvloop's own do not know it if that is in less than 0.5 ms
                return
            self._timer[1].cancel()
        self._timer = when, self._loop.call_at(when, self.tick)

    # On a lane's thread.

    def _work(self, lane: Lane) -> None:
        try:
            while (work := self._next_work(lane)) is not None:
                self._run(lane, work)
        except BaseException:  # whatever ends this thread must not take its texts with it
            logger.critical("lane %d died", lane.number, exc_info=True)
            with self._change:
                ended = self._lose(lane, LaneState.DEAD)
            self._observer.lane(lane.number, LaneState.DEAD)
            self._settle(ended)

    def _next_work(self, lane: Lane) -> SealedBatch | None:
        """Wait for a batch and a free core, and return the batch; `None` ends the lane."""
        was_idle = False
        with self._change:
            while lane.state is not LaneState.HUNG:
                if self.queue.is_empty:
                    if self._closing:
                        return None
                    was_idle = True
                elif self._budget.may_take(self._narrow, self._condition) and (
                    work := self._seal(lane, was_idle)
                ):
                    return work
                lane.state = LaneState.IDLE
                self._condition.wait()
        return None

    def _seal(self, lane: Lane, was_idle: bool) -> SealedBatch | None:
        """Choose a batch and take it from the queue; `None` if all waiting texts were overdue.

        The caller holds the lock.
        """
        now = self._clock()
        overdue = self.queue.expire(now)
        if overdue:
            self._settle(overdue)
            self._budget.wake_others(self._condition)
        if self.queue.is_empty:
            return None
        width = self._choose_width(was_idle)
        lanes = 1 if width > self._narrow else len(self.lanes)
        jobs = self._policy.choose(self.queue, lanes=lanes, now=now)
        waits_s = tuple(now - job.arrived_at for job in jobs)
        self.queue.take(jobs, now)
        self._budget.take(width)
        lane.state, lane.jobs, lane.width, lane.called_at = LaneState.BUSY, jobs, width, now
        if self._budget.free >= self._narrow:
            if self.queue.work_tokens:
                self._condition.notify()
            self._budget.wake_others(self._condition)
        return SealedBatch(jobs, width, waits_s)

    def _choose_width(self, was_idle: bool) -> int:
        alone = was_idle and self._budget.free == self._budget.total
        small = self.queue.work_tokens <= self._config.batch.batch_tokens
        return self._wide if alone and small and self._wide <= self._budget.free else self._narrow

    def _run(self, lane: Lane, work: SealedBatch) -> None:
        self._observer.lane(lane.number, LaneState.BUSY)
        started_at = self._clock()

        def call(batch: Batch) -> Embeddings:
            lane.called_at = self._clock()
            return self._engine.run(batch, width=work.width)

        outcomes = run_contained(call, [job.sequence for job in work.jobs])
        finished_at = self._clock()
        with self._change:
            if lane.state is LaneState.HUNG:  # given up meanwhile; its texts have their answers
                return
            self._measure_pace(work, finished_at - started_at)
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
        ended = [request for job, outcome in pairs for request in self.queue.finish(job, outcome, now)]
        self._release(lane, LaneState.IDLE)
        return ended

    def _measure_pace(self, work: SealedBatch, inference_s: float) -> None:
        tokens = sum(job.tokens for job in work.jobs)
        measured = tokens / max(inference_s * work.width, 1e-6)
        self._pace = PACE_MEMORY * self._pace + (1 - PACE_MEMORY) * measured

    def _settle(self, requests: list[QueuedRequest]) -> None:
        if requests and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._resolve, requests)

    # On either, lock held.

    def _hangs(self, lane: Lane, now: float) -> bool:
        return lane.state is LaneState.BUSY and now - lane.called_at > self._config.hang_s

    def _oldest(self) -> float | None:
        """Return the arrival time of the oldest text that a lane could take now."""
        if not any(lane.state is LaneState.IDLE for lane in self.lanes):
            return None
        waiting = [line.oldest().arrived_at for line in self.queue.wait_lists.values() if line]
        return min(waiting, default=None)

    def _release(self, lane: Lane, state: LaneState) -> None:
        self._budget.give_back(lane.width)
        lane.state, lane.jobs, lane.width = state, (), 0

    def _lose(self, lane: Lane, state: LaneState) -> list[QueuedRequest]:
        """Give up `lane` and fail its texts; if it was the last lane, fail all waiting texts too."""
        error = LaneLost("The worker that computed this text is lost. Another server may answer.")
        now = self._clock()
        ended = [request for job in lane.jobs for request in self.queue.finish(job, error, now)]
        self._release(lane, state)
        if all(other.state in LOST for other in self.lanes):
            self._is_lost = True
            ended += self.queue.fail_all(error, now)
        return ended

    def _join(self) -> None:
        for lane in self.lanes:
            if lane.thread is not None and lane.state not in LOST:
                lane.thread.join(JOIN_TIMEOUT_S)
