"""A limit on concurrent calls to a server, by additive increase and multiplicative decrease.

Source: Chiu and Jain, "Analysis of the Increase and Decrease Algorithms for Congestion Avoidance in Computer
Networks", 1989.
"""

import asyncio

FIRST_CALLS = 4
MOST_CALLS = 32


class ConcurrencyLimiter:
    """A limit on concurrent calls. Use with `async with`, from one event loop."""

    def __init__(self, first: int = FIRST_CALLS, most: int = MOST_CALLS) -> None:
        self.limit = first
        self._most = most
        self._inside = 0
        self._left = asyncio.Condition()

    async def __aenter__(self) -> None:
        async with self._left:
            await self._left.wait_for(lambda: self._inside < self.limit)
            self._inside += 1

    async def __aexit__(self, *_: object) -> None:
        async with self._left:
            self._inside -= 1
            self._left.notify_all()

    def increase(self) -> None:
        """Raise the limit by one after a successful call."""
        self.limit = min(self.limit + 1, self._most)

    def decrease(self) -> None:
        """Halve the limit after a call that was refused or timed out."""
        self.limit = max(self.limit // 2, 1)
