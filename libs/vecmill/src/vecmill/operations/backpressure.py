"""Backpressure: calls that find no room in the queue wait for it in order, instead of being refused.

How it works. A call runs at once if no other one of its kind waits. If it is refused by a full queue, or if
others wait, it stands in line. Whenever a call ends, the first one in line tries again, and lets the next one
try when it is admitted. So each end of a call costs one try that fails, whatever the length of the line. The
queue itself decides what fits. As texts are tokenised before they enter it, only `MOST_TRYING` calls try at
the same time.

Short calls, long ones and background calls stand in lines of their own, so that a query does not wait until
the texts of an import are tokenised. So do the calls of each client, who has a share of the queue. When a
call ends, the short ones try first, and those of the background last.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from typing import TypeVar

from vecmill.errors import DeadlineExceeded, QueueFull, mill_closed
from vecmill.requests import Caller, Priority

# Enough to keep the threads that tokenise at work.
MOST_TRYING = 4

# A call of at most so many characters is short: it is tokenised at once.
SHORT_CHARACTERS = 1_024

# Without an end of a call, room is looked for at least this often: others may have taken and left it.
LONGEST_PAUSE_S = 1.0

T = TypeVar("T")


class Backpressure:
    """The calls of one mill; see the module docstring. Use from one event loop."""

    def __init__(self) -> None:
        # By client: the lines of short calls, of long ones, and of those of the background.
        self._lines: tuple[dict[str | None, _WaitingLine], ...] = ({}, {}, {})
        self._numbers = count()
        self._running = 0
        self._is_closed = False

    async def run(
        self, call: Callable[[Caller], Awaitable[T]], caller: Caller, sizes: Sequence[int], limit_s: float
    ) -> T:
        """Return what `call` returns, which is called again after each `QueueFull` that it raises.

        It is given the caller, with the time that is left of its own limit. `sizes` are the characters of its
        texts. Raises `DeadlineExceeded` after `limit_s`, `ShuttingDown` if the mill is closed, and the other
        errors of `call`.
        """
        if self._is_closed:
            raise mill_closed()
        lines = self._lines[_kind_of(caller, sizes)]
        line = lines.setdefault(caller.client, _WaitingLine())
        line.calls += 1
        try:
            return await self._run_in(line, call, caller, limit_s)
        finally:
            line.calls -= 1
            if not line.calls:
                line.close()
                del lines[caller.client]

    def close(self) -> None:
        """Fail all calls that wait, and all later ones, with `ShuttingDown`."""
        self._is_closed = True
        for line in self._all_lines():
            line.close()

    async def _run_in(
        self, line: "_WaitingLine", call: Callable[[Caller], Awaitable[T]], caller: Caller, limit_s: float
    ) -> T:
        loop, number = asyncio.get_running_loop(), next(self._numbers)
        waited_s, began, must_wait = 0.0, loop.time(), not line.may_begin()
        while True:
            if must_wait:
                await line.wait(number, limit_s - waited_s, limit_s)
                waited_s = loop.time() - began
            attempt = line.begin()
            self._running += 1
            try:
                result = await call(replace(caller.after(waited_s), on_admission=attempt.end))
            except QueueFull as full:
                must_wait = True
                self._running -= 1
                line.refuse(attempt, LONGEST_PAUSE_S if self._running else full.retry_after_s)
            except BaseException:
                self._end(attempt)
                raise
            else:
                self._end(attempt)
                return result

    def _end(self, attempt: "_Attempt") -> None:
        self._running -= 1
        attempt.end()
        for line in self._all_lines():
            line.look()

    def _all_lines(self) -> "list[_WaitingLine]":
        return [line for lines in self._lines for line in lines.values()]


def _kind_of(caller: Caller, sizes: Sequence[int]) -> int:
    """Return the kind of a call: 0 for short ones, 1 for long ones, 2 for those of the background."""
    if caller.priority is Priority.BACKGROUND:
        return 2
    return 0 if sum(sizes) <= SHORT_CHARACTERS else 1


@dataclass(order=True, slots=True)
class _Waiter:
    """A call in line, by its number. `turn` ends when it may try."""

    number: int
    turn: "asyncio.Future[None]" = field(compare=False)


class _WaitingLine:
    """The calls of one kind and client: those that wait, as a heap, and how many try."""

    def __init__(self) -> None:
        self.calls = 0  # that wait, try or run
        self._waiting: list[_Waiter] = []
        self._called: _Waiter | None = None  # who may try, and has not begun to
        self._trying = 0
        self._is_full = False  # since the last try, and until a call ends
        self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None

    def may_begin(self) -> bool:
        """Return whether a call that has just come may try at once."""
        return self._may_try() and self._first() is None

    async def wait(self, number: int, left_s: float, limit_s: float) -> None:
        """Wait for the turn of a call, which keeps its number however often it is refused."""
        if self._is_closed:
            raise mill_closed()
        waiter = _Waiter(number, asyncio.get_running_loop().create_future())
        heappush(self._waiting, waiter)
        has_turn = False
        try:
            async with asyncio.timeout(None if math.isinf(left_s) else left_s):
                await waiter.turn
            has_turn = True
        except TimeoutError:
            raise DeadlineExceeded(
                f"The request found no room within {limit_s:g} s. Try again, or allow more time."
            ) from None
        finally:
            if self._called is waiter:
                self._called = None
            if not has_turn:  # the next one may have it
                self._call_next()

    def begin(self) -> "_Attempt":
        """Begin to try."""
        self._trying += 1
        if self._waiting:  # after the first step of the call, which may refuse it
            asyncio.get_running_loop().call_soon(self._call_next)
        return _Attempt(self)

    def refuse(self, attempt: "_Attempt", pause_s: float) -> None:
        """End an attempt that found no room. Room is looked for again after `pause_s` at the latest."""
        self._is_full = True
        attempt.end()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(min(pause_s, LONGEST_PAUSE_S), self.look)

    def leave(self) -> None:
        """End to try."""
        self._trying -= 1
        self._call_next()

    def look(self) -> None:
        """Let the first call in line try: there may be room."""
        self._is_full = False
        self._call_next()

    def close(self) -> None:
        """Fail all calls that wait, and those that would wait."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        while (waiter := self._first()) is not None:
            waiter.turn.set_exception(mill_closed())

    def _may_try(self) -> bool:
        return not self._is_full and self._called is None and self._trying < MOST_TRYING

    def _first(self) -> _Waiter | None:
        while self._waiting and self._waiting[0].turn.done():
            heappop(self._waiting)
        return self._waiting[0] if self._waiting else None

    def _call_next(self) -> None:
        waiter = self._first()
        if waiter is not None and self._may_try():
            self._called = waiter
            waiter.turn.set_result(None)


@dataclass(slots=True)
class _Attempt:
    """A call that tries, until it is admitted or refused."""

    line: _WaitingLine
    has_ended: bool = False

    def end(self) -> None:
        """End it, if it has not ended yet."""
        if not self.has_ended:
            self.has_ended = True
            self.line.leave()
