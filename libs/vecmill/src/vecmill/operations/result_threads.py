"""The threads that finish large results, so that the event loop can answer other requests meanwhile."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from vecmill.errors import mill_closed

T = TypeVar("T")

# Results of at most this many numbers are made on the event loop, in about the time of a switch to a thread.
INLINE_NUMBERS = 32_768
# The fixed time of a text takes about as long as arithmetic on this many numbers.
TEXT_NUMBERS = 2_000
THREADS = 2


class ResultThreads:
    """The threads of one loaded model. Use from one event loop."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="vecmill-compute")
        self._is_closed = False

    async def run(self, work: Callable[[], T]) -> T:
        """Return `work()`, called in one of the threads. Raises `ShuttingDown`, and the errors of `work`."""
        if self._is_closed:
            raise mill_closed()
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def run_if_large(self, work: Callable[[], T], numbers: int) -> T:
        """Return `work()`, called in one of the threads if it reads or makes many numbers."""
        return work() if numbers <= INLINE_NUMBERS else await self.run(work)

    def close(self) -> None:
        """Let the threads end after what they do now. May be called twice."""
        self._is_closed = True
        self._pool.shutdown(wait=False)
