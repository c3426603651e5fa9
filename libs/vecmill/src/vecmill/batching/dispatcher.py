"""The dispatcher between the event loop and the lanes, which compute the requests.

How it works. `admit` runs on the event loop: it hands a request to the scheduler (`scheduler`), which admits
or refuses it, and makes the future on which the request waits. The lanes (`lanes`) take batches from the
scheduler. Once per batch, the event loop learns which requests have ended, and resolves their futures.

Rules:
1. The lock of the core budget guards the scheduler and the lanes. No slow work happens while the lock is
   held. Without the lock, only single numbers are read.
2. Futures are touched on the event loop only.
3. One timer serves deadlines and lost lanes. It is set only while texts are waiting or running, so an idle
   dispatcher uses no processor time.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from vecmill.batching.change import Change
from vecmill.batching.lanes import Lanes
from vecmill.batching.queue import Room
from vecmill.batching.scheduler import Ask, Backlog, Scheduler, queue_full
from vecmill.batching.ticket import OWN_WORK, CountsSnapshot, QueuedRequest
from vecmill.config import MillConfig
from vecmill.engines.base import Engine
from vecmill.errors import (
    DeadlineExceeded,
    LaneLost,
    QueueFull,
    RequestTooLarge,
    ShuttingDown,
    VecmillError,
    mill_closed,
    workers_lost,
)
from vecmill.hardware.budget import CoreBudget
from vecmill.requests import Priority
from vecmill.values.batch import TokenSequence
from vecmill.values.clock import Clock, monotonic
from vecmill.values.engine_plan import CostModel
from vecmill.values.observer import Observer, Rejection, RunTimeline

TICK_S = 1.0  # how often hangs are looked for while something runs

_REJECTIONS: Mapping[type[VecmillError], Rejection] = MappingProxyType(
    {
        QueueFull: Rejection.QUEUE_FULL,
        RequestTooLarge: Rejection.TOO_LARGE,
        DeadlineExceeded: Rejection.TOO_LATE,
        LaneLost: Rejection.NOT_READY,
        ShuttingDown: Rejection.SHUTTING_DOWN,
    }
)


class Dispatcher:
    """The dispatcher of one engine; see the module docstring. Use from one event loop."""

    def __init__(
        self,
        engine: Engine,
        config: MillConfig,
        *,
        budget: CoreBudget,
        observer: Observer,
        cost: CostModel,
        clock: Clock = monotonic,
        first_lane: int = 0,
    ) -> None:
        """`cost` is the expected cost of calls on the narrowest width. Every call corrects it.

        `first_lane` is the number of its first lane, by which observers know the lanes of a model.
        """
        self.info = info = engine.info
        lanes = info.lanes_on(budget.total)
        self.scheduler = Scheduler(config, cost, lanes=lanes, widths=info.lane_widths)
        self._queue, self._forecast = self.scheduler.queue, self.scheduler.forecast
        self._change = Change(budget, self._queue.counts, observer)
        self.lanes = Lanes(
            engine,
            self.scheduler,
            self._change,
            self._settle,
            clock=clock,
            hang_s=config.hang_s,
            first=first_lane,
        )
        self._budget, self._lock = budget, budget.lock
        self._observer = observer
        self._clock = clock
        self._closing = False
        self._futures: dict[QueuedRequest, asyncio.Future[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.Handle | None = None
        self._tick_at = 0.0  # when the timer is due

    def start(self) -> None:
        """Start the lanes. Call it on the event loop that will call `admit`."""
        self._loop = asyncio.get_running_loop()
        self.lanes.start()

    @property
    def is_degraded(self) -> bool:
        """Whether a lane is lost now."""
        return self.lanes.is_degraded

    @property
    def is_lost(self) -> bool:
        """Whether no lane works and none can be replaced."""
        return self.lanes.watch.is_lost

    def measure_backlog(self) -> Backlog:
        """Return the waiting work as it is at one moment."""
        with self._lock:
            seconds = self._budget.wait_time.part_s(self.lanes.condition)
            return Backlog(self._queue.waiting_texts, self._queue.waiting_tokens, seconds)

    def counts_snapshot(self) -> CountsSnapshot:
        """Return all counts of texts as they are at one moment."""
        with self._lock:
            return self._queue.snapshot()

    def refuse_if_full(
        self,
        client: str | None = None,
        most_tokens: int = 1,
        priority: Priority | None = None,
        likely_costs_s: Sequence[float] = (),
    ) -> None:
        """Raise the error that `admit` would raise for any request of at most so many tokens.

        If the `likely_costs_s` of the texts are known, large requests that have little chance are refused
        too. Takes almost no time. May be called on any thread.
        """
        refusal = self.find_refusal(client, most_tokens, priority, likely_costs_s)
        if refusal is not None:
            self._observer.rejected(_REJECTIONS[type(refusal)])
            raise refusal

    def find_refusal(
        self,
        client: str | None = None,
        most_tokens: int = 1,
        priority: Priority | None = None,
        likely_costs_s: Sequence[float] = (),
    ) -> VecmillError | None:
        """Return the error that `refuse_if_full` would raise, and count no refusal."""
        if self._closing or self.lanes.watch.is_lost:
            return self._make_refusal()
        room = self._queue.room_for(1, 1, client)
        if room is not Room.FITS:
            return self.scheduler.make_refusal(room, 1, 1)
        delay_s = self.least_delay_s(client, most_tokens) if priority is None else 0.0
        if likely_costs_s and not delay_s:
            with self._lock:
                delay_s = self._forecast.likely_delay_s(likely_costs_s, client, priority, self._clock())
        return queue_full(delay_s) if delay_s else None

    def likely_costs_s(self, likely_tokens: Sequence[int]) -> list[float]:
        """Return the costs of texts with these likely numbers of tokens, for `refuse_if_full`."""
        if not likely_tokens:
            return []
        with self._lock:
            return self.scheduler.costs_s(likely_tokens)

    def least_delay_s(self, client: str | None, most_tokens: int) -> float:
        """Return at least how long any request of at most so many tokens waits for room; 0 if it may fit.

        Only the forecast says so. A server asks this before it reads a body, and `find_refusal` is asked
        afterwards, of the one queue that the texts go to. If both were one question, a server that is
        shutting down, has lost its lanes or holds as many texts as it may would no longer tell a client of
        its mistakes first, and a full queue of documents would refuse queries.
        """
        # The lock may be taken, and almost all requests end here.
        if not self._forecast.interactive_delay_s(client):
            return 0.0
        with self._lock:
            return self._forecast.least_delay_s(client, most_tokens)

    def admit(
        self, sequences: Sequence[TokenSequence], ask: Ask
    ) -> "tuple[QueuedRequest, asyncio.Future[None]]":
        """Admit `sequences` together. Return the request, and the future that is done when it has ended.

        Whoever waits calls `leave` afterwards, however the wait ends, and raises the `error` of the request.
        Raises `RequestTooLarge`, `QueueFull`, `DeadlineExceeded`, `ShuttingDown` or `LaneLost` if the request
        is not admitted.
        """
        assert self._loop is not None, "start() comes first"
        try:
            # The texts that join others are reported with the next change, at the latest when these end.
            with self._lock:
                if self._closing or self.lanes.watch.is_lost:
                    raise self._make_refusal()
                request = self.scheduler.admit(sequences, ask, self._clock())
                ending = self._futures[request] = self._loop.create_future()
                self.lanes.condition.notify()
        except VecmillError as error:
            self._observer.rejected(_REJECTIONS[type(error)])
            raise
        try:
            if ask.client != OWN_WORK:
                self._observer.admitted(len(sequences), request.tokens)
            if self._timer is None or request.deadline < self._tick_at:
                self._arm_timer()
        except BaseException:
            self.leave(request)
            raise
        return request, ending

    async def submit(self, sequences: Sequence[TokenSequence], ask: Ask | None = None) -> QueuedRequest:
        """Admit `sequences` together and wait until all are computed.

        Raises the errors of `admit`, and `DeadlineExceeded`, `EngineError` or `LaneLost` if the request
        fails. Cancelling the call removes the texts from the queue.
        """
        request, ending = self.admit(sequences, ask or Ask())
        try:
            await ending
        finally:
            self.leave(request)
        if request.error is not None:
            raise request.error
        return request

    def leave(self, request: QueuedRequest) -> None:
        """Forget a request that nobody waits for any more. If it has not ended, its texts leave the queue."""
        if request.open_tickets:
            with self._change:
                self._queue.cancel(request, self._clock())
                self._budget.wake_others(self.lanes.condition)
        del self._futures[request]
        if request.terms.timeline is not None:
            _record(request, request.terms.timeline)
        request.tickets = []  # a cycle, in which its embeddings would stay until the next collection

    async def close(self) -> None:
        """Fail all waiting texts with `ShuttingDown`, let running calls finish, and end the lanes.

        The texts of a call that does not finish in time fail too.

        May be called twice.
        """
        if self._closing:
            return
        with self._change:
            self._closing = True
            ended = self._queue.fail_all(mill_closed(), self._clock())
            self.lanes.end()
            self._budget.wake_others(self.lanes.condition)
        self._resolve(ended)
        if self._timer is not None:
            self._timer.cancel()
        try:
            await asyncio.to_thread(self.lanes.join)
        finally:
            with self._change:
                ended = self._queue.fail_all(mill_closed(), self._clock(), also_running=True)
            self._resolve(ended)
            with self._lock:
                self._budget.leave(self.lanes.condition)

    def tick(self) -> None:
        """End requests past their deadline, give up lanes that hang, and replace lost lanes.

        The timer calls this on the event loop.
        """
        self._timer = None  # first, so that the next request sets the timer again whatever fails here
        now = self._clock()
        with self._change:
            ended = self._queue.expire(now)
            if ended:
                self._budget.wake_others(self.lanes.condition)
        self._resolve(ended + self.lanes.tick())
        if self._queue.open_texts or self.lanes.watch.need_ticks:
            self._arm_timer()

    def _make_refusal(self) -> VecmillError:
        """Return the error of a dispatcher that is closing or lost."""
        if self._closing:
            return mill_closed()
        return workers_lost()

    def _resolve(self, requests: Iterable[QueuedRequest]) -> None:
        for request in requests:
            future = self._futures.get(request)
            if future is not None and not future.done():
                future.set_result(None)

    def _arm_timer(self) -> None:
        """Set the timer to the next deadline, or to the next tick if that is sooner."""
        assert self._loop is not None
        now, deadline = self._clock(), self._queue.next_deadline()
        delay_s = TICK_S if deadline is None else max(0.0, min(TICK_S, deadline - now))
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._tick_at = self._loop.call_later(delay_s, self.tick), now + delay_s
        self.lanes.watch.expect_tick(self._tick_at)

    def _settle(self, requests: list[QueuedRequest]) -> None:
        """Resolve the futures of requests that ended. Called on any thread."""
        if requests and self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed, and nobody waits
                self._loop.call_soon_threadsafe(self._resolve, requests)


def _record(request: QueuedRequest, timeline: RunTimeline) -> None:
    """Add the times of a request to those of its run, which has two requests if it has texts of two sides."""
    timeline.admitted_at = _first(timeline.admitted_at, request.admitted_at)
    timeline.started_at = _first(timeline.started_at, request.started_at)
    timeline.finished_at = _last(timeline.finished_at, request.finished_at)
    timeline.has_failed |= request.error is not None


def _first(one: float | None, other: float | None) -> float | None:
    return min((time for time in (one, other) if time is not None), default=None)


def _last(one: float | None, other: float | None) -> float | None:
    return max((time for time in (one, other) if time is not None), default=None)
