"""The dispatcher between the event loop and the lanes, which compute the requests.

How it works. `submit` runs on the event loop: it asks the forecast whether a request can be answered in time,
admits it to the queue and waits on a future. The lanes (`lanes`) take batches from the queue. Once per batch,
the event loop learns which requests have ended, and resolves their futures.

Rules:
1. The lock of the core budget guards the queue and the lanes. No slow work happens while the lock is held.
   Without the lock, only single numbers are read.
2. Futures are touched on the event loop only.
3. One timer serves deadlines and lost lanes. It is set only while texts are waiting or running, so an idle
   dispatcher uses no processor time.
"""

import asyncio
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from vecmill.batching.counts import CountsSnapshot
from vecmill.batching.lanes import Lanes
from vecmill.batching.pace import Pace
from vecmill.batching.queue import Queue, Room
from vecmill.batching.ticket import OWN_WORK, QueuedRequest, Terms
from vecmill.config import MillConfig
from vecmill.engines.base import Engine
from vecmill.errors import DeadlineExceeded, LaneLost, QueueFull, RequestTooLarge, ShuttingDown
from vecmill.hardware.budget import CoreBudget
from vecmill.requests import Priority
from vecmill.values.batch import TokenSequence
from vecmill.values.clock import Clock, monotonic
from vecmill.values.engine_info import CostModel
from vecmill.values.observer import Observer, Rejection, RunTimeline

TICK_S = 1.0  # how often hangs are looked for while something runs

# Requests whose time limit seems too short for an idle machine are tried for at most this part of the time.
TRY_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Backlog:
    """The waiting work, and the measured time to compute it."""

    texts: int
    tokens: int
    seconds: float


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
    ) -> None:
        """`cost` is the expected cost of calls on the narrowest width. Every call corrects it."""
        self.info = info = engine.info
        self._pace = Pace(cost, narrow=info.lane_widths[0], lanes=info.lanes_on(budget.total))
        self.queue = Queue(config.queue, self._pace.text_cost_s)
        self.lanes = Lanes(
            engine, config, self.queue, self._pace, budget=budget, observer=observer, clock=clock
        )
        self._forecast = self.lanes.forecast
        self._change = self.lanes.change
        self._condition = self.lanes.condition
        self._config = config
        self._budget = budget
        self._observer = observer
        self._clock = clock
        self._closing = False
        self._next_try_at: float | None = None  # when a request that seems too late may be tried
        self._futures: dict[QueuedRequest, asyncio.Future[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: tuple[float, asyncio.Handle] | None = None  # and when it is due

    def start(self) -> None:
        """Start the lanes. Call it on the event loop that will call `submit`."""
        self._loop = asyncio.get_running_loop()
        self.lanes.start(self._settle)

    @property
    def is_degraded(self) -> bool:
        """Whether a lane is lost now."""
        return self.lanes.is_degraded

    @property
    def is_lost(self) -> bool:
        """Whether no lane works and none can be replaced."""
        return self.lanes.is_lost

    @property
    def backlog(self) -> Backlog:
        """The waiting work."""
        return Backlog(self.queue.waiting_texts, self.queue.waiting_tokens, self._forecast.waiting_s)

    def counts_snapshot(self) -> CountsSnapshot:
        """Return all counts of texts as they are at one moment."""
        with self._budget.lock:
            return self.queue.snapshot()

    def refuse_if_full(
        self,
        client: str | None = None,
        most_tokens: int = 1,
        priority: Priority | None = None,
        likely_costs_s: Sequence[float] = (),
    ) -> None:
        """Raise the error that `submit` would raise for any request of at most so many tokens.

        If the `likely_costs_s` of the texts are known, large requests that have little chance are refused
        too. Takes almost no time. May be called on any thread.
        """
        self._refuse_unless_running()
        self._refuse_unless_room(1, 1, client)
        delay_s = self.least_delay_s(client, most_tokens) if priority is None else 0.0
        if likely_costs_s and not delay_s:
            with self._budget.lock:
                delay_s = self._forecast.likely_delay_s(likely_costs_s, client, priority, self._clock())
        if delay_s:
            self._refuse(delay_s)

    def likely_costs_s(self, likely_tokens: Sequence[int]) -> list[float]:
        """Return the costs of texts with these likely numbers of tokens, for `refuse_if_full`."""
        if not likely_tokens:
            return []
        with self._budget.lock:
            return list(map(self._pace.text_cost_s, likely_tokens))

    def least_delay_s(self, client: str | None, most_tokens: int) -> float:
        """Return at least how long any request of at most so many tokens waits for room; 0 if it may fit."""
        if not self._forecast.delays(client):  # the lock may be taken, and almost all requests end here
            return 0.0
        with self._budget.lock:
            return self._forecast.least_delay_s(client, self._pace.text_cost_s(most_tokens))

    async def submit(
        self,
        sequences: Sequence[TokenSequence],
        *,
        priority: Priority | None = None,
        client: str | None = None,
        timeout_s: float | None = None,
        accepted_at: float | None = None,
        timeline: RunTimeline | None = None,
    ) -> QueuedRequest:
        """Admit `sequences` together and wait until all are computed.

        The priority and the time limit follow from the predicted time of the request. `priority` can only
        make it less urgent, and `timeout_s` only shorten the limit, which counts from `accepted_at`, by
        default from now. `timeline` records the times.

        Raises `RequestTooLarge`, `QueueFull`, `DeadlineExceeded`, `ShuttingDown` or `LaneLost` if the request
        is not admitted, and `DeadlineExceeded`, `EngineError` or `LaneLost` if an admitted request fails.
        Cancelling the call removes the texts from the queue.
        """
        assert self._loop is not None, "start() comes first"
        tokens, now = sum(map(len, sequences)), self._clock()
        accepted_at = now if accepted_at is None else accepted_at
        with self._change:
            self._refuse_unless_running()
            self._refuse_unless_room(len(sequences), tokens, client)
            costs_s = self.queue.costs_s(sequences)
            own_s = self._forecast.own_s(costs_s)
            terms = self._make_terms(own_s, priority, client, timeout_s, accepted_at)
            is_try = now + own_s > terms.deadline
            if is_try and not self._may_try(terms.deadline - now, now):
                self._refuse_as_too_late(own_s, terms.deadline - accepted_at)
            place = self._forecast.find_place(costs_s, terms, now)
            if place.delay_s > 0 and not is_try:
                self._refuse(place.delay_s)
            terms = replace(terms, deadline=terms.deadline + place.extra_s, timeline=timeline)
            request = self.queue.admit(sequences, terms, now, costs_s)
            self.queue.put_off(place.later, place.others_s)
            future = self._futures[request] = self._loop.create_future()
            self._condition.notify()
        try:
            if client != OWN_WORK:
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
            if timeline is not None:
                _record(request, timeline)
            request.tickets = []  # a cycle, in which its embeddings would stay until the next collection
        if request.error is not None:
            raise request.error
        if is_try:  # the prediction is wrong
            self._next_try_at = self._clock()
        return request

    async def close(self) -> None:
        """Fail all waiting texts with `ShuttingDown`, let running calls finish, and end the lanes.

        The texts of a call that does not finish in time fail too.

        May be called twice.
        """
        if self._closing:
            return
        with self._change:
            self._closing = True
            ended = self.queue.fail_all(_shutting_down(), self._clock())
            self.lanes.end()
            self._budget.wake_others(self._condition)
        self._resolve(ended)
        if self._timer is not None:
            self._timer[1].cancel()
        try:
            await asyncio.to_thread(self.lanes.join)
        finally:
            with self._change:
                ended = self.queue.fail_all(_shutting_down(), self._clock(), also_running=True)
            self._resolve(ended)
            self._budget.leave(self._condition)

    def tick(self) -> None:
        """End requests past their deadline, give up lanes that hang, and replace lost lanes.

        The timer calls this on the event loop.
        """
        self._timer = None  # first, so that the next request sets the timer again whatever fails here
        now = self._clock()
        with self._change:
            ended = self.queue.expire(now)
            if ended:
                self._budget.wake_others(self._condition)
        self._resolve(ended + self.lanes.tick())
        if self.queue.open_texts or self.lanes.need_ticks:
            self._arm_timer()

    def _make_terms(
        self,
        own_s: float,
        priority: Priority | None,
        client: str | None,
        timeout_s: float | None,
        accepted_at: float,
    ) -> Terms:
        """Return the terms of a request that takes `own_s` on an idle machine."""
        priority = self._forecast.choose_priority(own_s, priority)
        # Background work is worth computing however late.
        limit_s = math.inf if priority is Priority.BACKGROUND else self._forecast.time_limit_s(own_s)
        may_wait = timeout_s is None or timeout_s >= limit_s
        if timeout_s is not None:
            limit_s = min(limit_s, timeout_s)
        return Terms(priority, accepted_at + limit_s, client, may_wait)

    def _may_try(self, left_s: float, now: float) -> bool:
        """Return whether a request may run that seems to take more time than the `left_s` of its time limit.

        Only calls correct a wrong prediction, so on an idle machine such a request is tried now and then.
        """
        if self._next_try_at is None:
            self._next_try_at = now + left_s / TRY_SHARE
        if left_s <= 0 or self.queue.open_texts or now < self._next_try_at:
            return False
        self._next_try_at = now + left_s / TRY_SHARE
        return True

    def _refuse_as_too_late(self, own_s: float, limit_s: float) -> NoReturn:
        self._observer.rejected(Rejection.TOO_LATE)
        raise DeadlineExceeded(
            f"The request takes about {own_s:.3g} s on this machine, and its time limit is {limit_s:g} s. "
            "Allow more time, or send fewer texts at a time."
        )

    def _refuse_unless_running(self) -> None:
        if self._closing:
            self._observer.rejected(Rejection.SHUTTING_DOWN)
            raise ShuttingDown("The server is shutting down. Another one may answer.")
        if self.lanes.is_lost:
            self._observer.rejected(Rejection.NOT_READY)
            raise LaneLost("Every worker of this server is lost. It has to be restarted.")

    def _refuse_unless_room(self, texts: int, tokens: int, client: str | None) -> None:
        room = self.queue.room_for(texts, tokens, client)
        if room is Room.NEVER:
            self._observer.rejected(Rejection.TOO_LARGE)
            limits = self._config.queue
            raise RequestTooLarge(
                f"The request has {texts} texts with {tokens} tokens; this server never holds more than "
                f"{limits.max_queue_texts} texts and {limits.max_queue_tokens} tokens. Send it in parts."
            )
        if room is Room.FULL:
            self._refuse(self.backlog.seconds)

    def _refuse(self, delay_s: float) -> NoReturn:
        self._observer.rejected(Rejection.QUEUE_FULL)
        raise QueueFull(
            "The server has as much waiting as it can answer in time. Try again later.",
            retry_after_s=max(delay_s, 0.05),
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
        self.lanes.expect_tick(self._clock() + delay_s)

    def _settle(self, requests: list[QueuedRequest]) -> None:
        """Resolve the futures of requests that ended. Called on any thread."""
        if requests and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._resolve, requests)


def _record(request: QueuedRequest, timeline: RunTimeline) -> None:
    timeline.admitted_at, timeline.started_at = request.admitted_at, request.started_at
    timeline.finished_at, timeline.has_failed = request.finished_at, request.error is not None


def _shutting_down() -> ShuttingDown:
    return ShuttingDown("The server is shutting down.")
