"""Which models of a catalog are in memory: leases of requests, loads, drops, and the time of the next expiry.

    OUT ──> LOADING ──> LOADED ──> LEAVING ──> OUT
                └─────────> OUT (the load failed)

How it works. A request takes a lease on the resident that it needs, and gives it back. A resident that is not
loaded is put into a queue, and the requests for it wait. One task, which exists only while the queue has
entries, makes room for the first one and loads it, and then all requests that wait for it have their leases.

Rules:
1. A resident with a lease is never dropped.
2. Room is made of idle residents, the one that was used longest ago first, and only if enough comes of it.
3. A load that has waited for `PATIENCE_S` gets its turn: residents in use take no further leases until they
   have been dropped. Requests for them wait for their next load.
4. The memory that counts is the sum of what the loaded residents hold, or what the process takes, if that is
   more. With nothing loaded only the sum counts, since there is nothing left to drop. After a load, what
   the process takes beyond the sum is added to the model that was loaded.
5. A load that failed is the answer of all who waited for it. Until it may be tried again, it is the answer of
   all others too.
6. One timer is set, for the next expiry of an idle resident. It is not moved at each request: when it fires,
   and nothing has expired, it is set again.

Everything runs on the event loop, except the loads and drops themselves. The clock, the timer and the measure
of memory are given, so that tests decide them.
"""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from vecmill.errors import LoadFailed, QueueFull, ShuttingDown, VecmillError
from vecmill.values.clock import Clock, monotonic
from vecmill.values.interruptions import INTERRUPTIONS
from vecmill_server.base.errors import NoRoom
from vecmill_server.catalog.load_failures import reload_delay_s
from vecmill_server.catalog.memory_budget import MemoryBudget
from vecmill_server.catalog.residents import Loadable, Resident, ResidentPlace
from vecmill_server.catalog.timer import Timer, TimerHandle, call_later

logger = logging.getLogger(__name__)

# A load that has waited so long for room gets its turn.
PATIENCE_S = 2.0
# The requests that may wait for loads; one client may have half of them.
MOST_WAITING = 1024
# The time of a load before one was measured.
USUAL_LOAD_S = 5.0


class Residency:
    """The residents that share a budget of memory; see the module docstring.

    `budget_mb` is for the whole process, of which `base_mb` is not for residents. `keep_s` is how long an
    unused resident is kept, `math.inf` until its room is needed.
    """

    def __init__(
        self,
        budget_mb: float,
        keep_s: float,
        *,
        base_mb: float,
        measure_mb: Callable[[], float],
        clock: Clock = monotonic,
        timer: Timer = call_later,
    ) -> None:
        self._residents: list[Resident] = []
        self.memory = MemoryBudget(budget_mb, base_mb, measure_mb, self._residents)
        self.keep_s = keep_s
        self._clock = clock
        self._timer = timer
        self._queue: list[Resident] = []
        self._clients: Counter[str | None] = Counter()  # of the requests that wait
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_loading = False
        self._expiry: TimerHandle | None = None
        self._expiry_at = math.inf
        self._load_s = USUAL_LOAD_S
        self._is_closed = False

    def __iter__(self) -> Iterator[Resident]:
        return iter(self._residents)

    @property
    def waiting_count(self) -> int:
        """The requests that wait for loads."""
        return self._clients.total()

    def may_try(self, resident: Resident) -> bool:
        """Return whether a request would be tried: with its load, unless a load failed a short time ago."""
        return resident.failure is None or self._clock() >= resident.retry_at

    def add(self, content: Loadable) -> Resident:
        """Add what may be loaded from now on."""
        resident = Resident(content, content.estimate.held_mb)
        self._residents.append(resident)
        return resident

    def lease(self, resident: Resident) -> bool:
        """Take a lease if the resident is loaded, and return whether it is. `release` gives it back."""
        if not resident.takes_leases:
            return False
        resident.leases += 1
        resident.is_dismissed = False
        return True

    async def acquire(self, resident: Resident, timeout_s: float, client: str | None = None) -> None:
        """Take a lease, and wait for the load if the resident is not loaded. `release` gives the lease back.

        Raises `ModelUnavailable` if the load fails or has failed a short time ago, `NoRoom` after `timeout_s`
        seconds, `QueueFull` if too many requests wait, and `ShuttingDown`. A call that is cancelled takes no
        lease.
        """
        if self.lease(resident):
            return
        self._refuse(resident, client)
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        resident.waiting[ticket] = client
        self._clients[client] += 1
        self._want(resident)
        deadline = self._timer(timeout_s, partial(self._give_up, resident, ticket))
        try:
            await ticket
        except asyncio.CancelledError:
            if not ticket.cancelled() and ticket.exception() is None:  # granted at the same moment
                self.release(resident)
            raise
        finally:
            deadline.cancel()
            self._leave(resident, ticket)

    def release(self, resident: Resident, keep_s: float | None = None) -> None:
        """Give a lease back. The resident is kept for `keep_s` from now, at most `Residency.keep_s`."""
        kept_s = self.keep_s if keep_s is None else min(keep_s, self.keep_s)
        now = self._clock()
        resident.leases -= 1
        resident.used_at = now
        resident.expires_at = now if resident.is_dismissed else max(resident.expires_at, now + kept_s)
        if not resident.leases:
            self._changed.set()
            if resident.expires_at <= now:
                self._drop_soon(resident)
            else:
                self._watch_expiry(resident.expires_at)

    def keep(self, resident: Resident, keep_s: float) -> None:
        """Keep a loaded resident for `keep_s` seconds from now, whatever was asked for before.

        With 0 it is dropped when those who use it now have given their leases back.
        """
        resident.expires_at = self._clock() + keep_s
        resident.is_dismissed = keep_s <= 0
        if resident.is_idle and keep_s <= 0:
            self._drop_soon(resident)
        elif resident.is_idle:
            self._watch_expiry(resident.expires_at)

    def foresee_drop_s(self, resident: Resident) -> float:
        """Return the seconds until a loaded resident is dropped, if nobody uses it any more."""
        kept_s = resident.expires_at - self._clock()
        return max(kept_s, 0.0 if resident.is_dismissed else self.keep_s) if resident.leases else kept_s

    async def close(self) -> None:
        """Refuse the waiting requests, and load and drop nothing any more. A running load is left alone."""
        self._is_closed = True
        for resident in self._residents:
            self._refuse_waiting(resident, _closing)
        if self._expiry is not None:
            self._expiry.cancel()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _refuse(self, resident: Resident, client: str | None) -> None:
        """Raise the error of a request that may not wait."""
        if self._is_closed:
            raise _closing()
        if not self.may_try(resident):
            raise resident.explain(self._clock())
        if self.waiting_count >= MOST_WAITING or self._clients[client] >= MOST_WAITING // 2:
            raise QueueFull(
                "Too many requests wait for models to be loaded.", retry_after_s=self._foresee_wait_s()
            )

    def _want(self, resident: Resident) -> None:
        """Put a resident into the queue, if it is not there yet, and start the task that loads."""
        if resident.is_wanted or resident.place is ResidentPlace.LOADING:
            return
        resident.is_wanted = True
        self._queue.append(resident)
        if not self._is_loading:
            self._is_loading = True
            self._start(self._load_all())

    def _leave(self, resident: Resident, ticket: "asyncio.Future[None]") -> None:
        client = resident.waiting.pop(ticket, None)
        self._clients[client] -= 1
        if not self._clients[client]:
            del self._clients[client]
        if not resident.waiting:
            self._changed.set()  # the load may not be needed any more

    def _give_up(self, resident: Resident, ticket: "asyncio.Future[None]") -> None:
        if not ticket.done():
            ticket.set_exception(
                NoRoom(
                    f"The model `{resident.content.name}` is not loaded, and could not be in time: other "
                    "models are in use, or its load takes longer.",
                    retry_after_s=self._foresee_wait_s(),
                )
            )

    def _foresee_wait_s(self) -> float:
        return self._load_s * max(1, len(self._queue))

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _load_all(self) -> None:
        """Load what is wanted, one after the other."""
        try:
            while self._queue:
                resident = self._queue[0]
                if await self._make_room(resident):
                    await self._load(resident)
        finally:
            self._is_loading = False

    def _unwant(self, resident: Resident) -> None:
        resident.is_wanted = False
        self._queue.remove(resident)

    async def _make_room(self, resident: Resident) -> bool:
        """Return when there is room for a load; False if nobody waits for it any more."""
        patient_until = self._clock() + PATIENCE_S
        impatience: TimerHandle | None = None
        try:
            while resident.waiting and not resident.takes_leases:
                self._changed.clear()
                dropped = self.memory.choose_dropped(resident)
                if dropped is not None and not dropped and resident.place is ResidentPlace.OUT:
                    return True
                for each in dropped or ():
                    await self._drop(each)
                if dropped:
                    continue
                if self._clock() >= patient_until:
                    self._ask_to_yield(resident)
                elif impatience is None:
                    impatience = self._timer(PATIENCE_S, self._changed.set)
                if not self._has_room_now(resident):
                    await self._changed.wait()
            self._unwant(resident)
            return False
        finally:
            if impatience is not None:
                impatience.cancel()
            self._end_yielding()

    def _has_room_now(self, resident: Resident) -> bool:
        return self.memory.choose_dropped(resident) is not None and resident.place is ResidentPlace.OUT

    def _ask_to_yield(self, resident: Resident) -> None:
        """Let as many residents as the load needs take no further leases: those that were loaded first."""
        missing_mb = self.memory.missing_mb(resident)
        loaded = [each for each in self._residents if each.place is ResidentPlace.LOADED]
        for each in sorted(loaded, key=lambda each: each.loaded_at):
            if missing_mb <= 0:
                return
            each.yields = True
            missing_mb -= each.held_mb

    def _end_yielding(self) -> None:
        """Grant the leases of residents that did not have to leave."""
        for each in self._residents:
            if each.yields:
                each.yields = False
                if each.takes_leases:
                    self._grant(each)

    async def _load(self, resident: Resident) -> None:
        """Load a resident, and grant the leases of all who wait for it, or tell them the error."""
        self._unwant(resident)
        resident.place = ResidentPlace.LOADING
        began = self._clock()
        resident.held_mb = resident.peak_mb
        try:
            await resident.content.load()
        except VecmillError as error:
            self._note_failure(resident, error)
        except INTERRUPTIONS:  # the server closes
            resident.place = ResidentPlace.OUT
            raise
        except BaseException:
            logger.exception("loading %s failed", resident.content.name)
            self._note_failure(resident, LoadFailed("An unexpected error, which is in the log."))
        else:
            now = self._clock()
            self._load_s = (self._load_s + now - began) / 2
            resident.held_mb = resident.content.estimate.held_mb
            resident.held_mb += max(0.0, self.memory.measure_mb() - self.memory.held_mb)
            resident.loads += 1
            resident.failure, resident.failures = None, 0
            resident.place, resident.loaded_at, resident.used_at = ResidentPlace.LOADED, now, now
            resident.expires_at = now
            self._grant(resident)
            await self._shrink()
        self._changed.set()

    def _note_failure(self, resident: Resident, error: VecmillError) -> None:
        now = self._clock()
        resident.place, resident.held_mb = ResidentPlace.OUT, resident.content.estimate.held_mb
        resident.failure = error
        resident.retry_at = now + reload_delay_s(resident.failures)
        resident.failures += 1
        logger.error("the model %s could not be loaded: %s", resident.content.name, error.message)
        self._refuse_waiting(resident, partial(resident.explain, now))

    def _grant(self, resident: Resident) -> None:
        for ticket in resident.waiting:
            if not ticket.done():
                resident.leases += 1
                resident.is_dismissed = False
                ticket.set_result(None)
        if resident.is_idle:  # all have left
            resident.expires_at = max(resident.expires_at, self._clock() + self.keep_s)
            self._watch_expiry(resident.expires_at)

    def _refuse_waiting(self, resident: Resident, make_error: Callable[[], VecmillError]) -> None:
        for ticket in resident.waiting:
            if not ticket.done():
                ticket.set_exception(make_error())

    async def _shrink(self) -> None:
        """Drop idle residents while a load took more memory than was estimated."""
        while self.memory.held_mb > self.memory.budget_mb:
            idle = [each for each in self._residents if each.is_idle]
            if not idle:
                return
            await self._drop(min(idle, key=lambda each: each.used_at))

    def _drop_soon(self, resident: Resident) -> None:
        if resident.is_idle and not self._is_closed:
            resident.place = ResidentPlace.LEAVING
            self._start(self._finish_drop(resident))

    async def _drop(self, resident: Resident) -> None:
        if resident.is_idle:  # still, after what was awaited
            resident.place = ResidentPlace.LEAVING
            await self._finish_drop(resident)

    async def _finish_drop(self, resident: Resident) -> None:
        try:
            await resident.content.drop()
        except INTERRUPTIONS:
            raise
        except BaseException:
            logger.exception("dropping %s failed", resident.content.name)
        finally:
            resident.place = ResidentPlace.OUT
            self._changed.set()

    def _watch_expiry(self, expires_at: float) -> None:
        if expires_at >= self._expiry_at or self._is_closed:
            return
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry_at = expires_at
        self._expiry = self._timer(max(0.0, expires_at - self._clock()), self._expire)

    def _expire(self) -> None:
        """Drop what has expired, and set the timer to the next expiry of what is idle."""
        self._expiry, self._expiry_at = None, math.inf
        now = self._clock()
        for resident in self._residents:
            if resident.is_idle and resident.expires_at <= now:
                self._drop_soon(resident)
            elif resident.is_idle and math.isfinite(resident.expires_at):
                self._watch_expiry(resident.expires_at)


def _closing() -> ShuttingDown:
    return ShuttingDown("This server is shutting down. Another one may answer.")
