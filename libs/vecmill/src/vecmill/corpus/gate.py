"""How many calls a server gets at once: one more while it keeps up, half as many once it does not.

This is additive increase and multiplicative decrease, by which senders find a rate that a receiver can take
without knowing it. Source: Chiu and Jain, "Analysis of the Increase and Decrease Algorithms for Congestion
Avoidance in Computer Networks", 1989.
"""

import asyncio
from types import TracebackType

FIRST_CALLS = 4
MOST_CALLS = 32


class Gate:
    """Lets so many in at a time. Use with `async with`, from one event loop."""

    def __init__(self, first: int = FIRST_CALLS, most: int = MOST_CALLS) -> None:
        self.limit = first
        self._most = most
        self._inside = 0
        self._left = asyncio.Condition()

    async def __aenter__(self) -> None:
        async with self._left:
            await self._left.wait_for(lambda: self._inside < self.limit)
            self._inside += 1

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with self._left:
            self._inside -= 1
            self._left.notify_all()

    def widen(self) -> None:
        """A call was answered in time."""
        self.limit = min(self.limit + 1, self._most)

    def narrow(self) -> None:
        """A call was refused, or came too late."""
        self.limit = max(self.limit // 2, 1)
