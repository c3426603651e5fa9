"""The turns of connections whose next request has arrived before the response to the earlier one.

A client may send many requests at once (pipelining). If each of them began when the one before it was
answered, a hundred such connections would begin a hundred requests in each turn of the event loop, and every
other client would wait for all of them several times. Therefore these connections wait in one line, and at
most `REQUESTS_PER_TURN` of them begin a request in a turn of the event loop. A connection then goes to the
end of the line. A request that arrives on any other connection begins when it is read.
"""

import asyncio
from collections import deque
from collections.abc import Callable

# A request of a cheap route takes about 0.1 ms.
REQUESTS_PER_TURN = 4


class PipelineTurns:
    """The line of all connections of a server. Use from one event loop."""

    def __init__(self) -> None:
        self._line: deque[Callable[[], None]] = deque()
        self._is_scheduled = False

    def wait(self, loop: asyncio.AbstractEventLoop, begin: Callable[[], None]) -> None:
        """Call `begin`, which begins one request, in a later turn of `loop`."""
        self._line.append(begin)
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._take_turn, loop)

    def _take_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        for _ in range(min(len(self._line), REQUESTS_PER_TURN)):
            loop.call_soon(self._line.popleft())  # apart, so that an error in one does not end the others
        self._is_scheduled = bool(self._line)
        if self._is_scheduled:
            loop.call_soon(self._take_turn, loop)
