"""The limits on connections, and the objects that all connections of a server share."""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from vecmill.errors import VecmillError
from vecmill_server.http1.pauses import Pauses
from vecmill_server.http1.request_cycle import write_lines
from vecmill_server.http1.time_limits import State, StateTime, state_times

# The most bytes that one read takes from a socket.
READ_BYTES = 32 * 1024

# The connection stops reading while this much of the next requests waits.
PENDING_BYTES = 64 * 1024

# The most bytes of a refused client that are discarded.
LINGER_BYTES = 64 * 1024 * 1024

# Connections over the limit that get a response before they are closed. Further connections are reset.
EXTRA_CONNECTIONS = 64

# A connection ends at an age between this share of the longest age and all of it, drawn at random, so that
# connections that were made together do not end together.
LEAST_AGE_SHARE = 0.8

# The memory of a head, for each of its bytes. Heads of ordinary size are not counted.
HEAD_FACTOR = 4
ORDINARY_HEAD_BYTES = 2048

# The most pipelined requests that begin in a turn of the event loop. One of a cheap route takes about 0.1 ms.
REQUESTS_PER_TURN = 4


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits on connections: their number and age, the size of headers, and the times of a client."""

    max_connections: int
    max_header_bytes: int
    header_timeout_s: float
    body_timeout_s: float
    keep_alive_s: float
    write_timeout_s: float
    max_connection_age_s: float  # 0 for no limit


class HeldHead(Protocol):
    """The bytes of one head that count in the memory of the server."""

    count: int

    def add(self, count: int) -> None:
        """Hold `count` more bytes. May be negative."""

    def release(self) -> None:
        """Give all bytes back."""


class HeadBudget(Protocol):
    """The memory that the heads of all connections share with the bodies."""

    def hold(self) -> HeldHead:
        """Return an empty count for one head."""


# Returns the status, the headers and the body of the response to an error.
Refuse = Callable[[VecmillError], tuple[int, list[tuple[bytes, bytes]], bytes]]


class PipelineTurns:
    """The line of connections whose next request arrived before the response to the earlier one.

    A client may send many requests at once (pipelining). If each of them began when the one before it was
    answered, a hundred such connections would begin a hundred requests in each turn of the event loop, and
    every other client would wait for all of them several times. Therefore these connections wait in one line,
    and at most `REQUESTS_PER_TURN` of them begin a request in a turn of the event loop. A connection then
    goes to the end of the line. A request that arrives on any other connection begins when it is read.

    Use from one event loop.
    """

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


@dataclass(frozen=True, slots=True)
class ConnectionShare:
    """The objects that all connections of a server share.

    `refuse` counts an error, and returns the status, the headers and the body of its response.
    `trace_clock` is the monotonic clock of traces, or `None` if nothing is traced.

    The event loop reads one socket at a time, so one read buffer serves all connections.
    """

    limits: ConnectionLimits
    budget: HeadBudget
    refuse: Refuse
    trace_clock: Callable[[], float] | None = None
    turns: PipelineTurns = field(default_factory=PipelineTurns)
    pauses: Pauses = field(default_factory=Pauses)
    dice: Random = field(default_factory=Random)
    read_buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(READ_BYTES)))
    times: Mapping[State, StateTime] = field(init=False)

    def __post_init__(self) -> None:
        limits = self.limits
        times = state_times(
            keep_alive_s=limits.keep_alive_s, head_s=limits.header_timeout_s, body_s=limits.body_timeout_s
        )
        object.__setattr__(self, "times", times)

    def draw_age_s(self) -> float:
        """Return the age in seconds at which a new connection ends; infinity for no limit."""
        longest_s = self.limits.max_connection_age_s
        return self.dice.uniform(LEAST_AGE_SHARE * longest_s, longest_s) if longest_s else math.inf

    def refusal(self, error: VecmillError, default_headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """Return the response to what is no request, which closes the connection."""
        status, own_headers, body = self.refuse(error)
        headers = [*default_headers, *own_headers, (b"connection", b"close")]
        return b"".join([STATUS_LINE[status], write_lines(headers), b"\r\n", body])
