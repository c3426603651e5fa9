"""The limits on connections, and the objects that all connections of a server share."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from vecmill.errors import VecmillError
from vecmill.values.clock import monotonic
from vecmill_server.http1.pipelining import PipelineTurns
from vecmill_server.http1.scope_keys import HEAD_AT

# The most bytes that one read takes from a socket.
READ_BYTES = 32 * 1024

# The connection stops reading while this much of the next requests waits.
PENDING_BYTES = 64 * 1024

# The time and the bytes for which the input of a refused client is discarded.
LINGER_S = 2.0
LINGER_BYTES = 64 * 1024 * 1024

# The application's time limit for a body comes first, and sends a response. The protocol only closes.
BODY_GRACE_S = 5.0

# Connections over the limit that get a response before they are closed. Further connections are reset.
EXTRA_CONNECTIONS = 64

# A connection ends at an age between this share of the longest age and all of it, drawn at random, so that
# connections that were made together do not end together.
LEAST_AGE_SHARE = 0.8

# The memory of a head, for each of its bytes. Heads of ordinary size are not counted.
HEAD_FACTOR = 4
ORDINARY_HEAD_BYTES = 2048


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


@dataclass(frozen=True, slots=True)
class ConnectionShare:
    """The objects that all connections of a server share.

    `refuse` counts an error, and returns the status, the headers and the body of its response.

    The event loop reads one socket at a time, so one read buffer serves all connections.
    """

    limits: ConnectionLimits
    budget: HeadBudget
    refuse: Refuse
    is_traced: bool = False
    turns: PipelineTurns = field(default_factory=PipelineTurns)
    dice: Random = field(default_factory=Random)
    read_buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(READ_BYTES)))

    def draw_age_s(self) -> float:
        """Return the age in seconds at which a new connection ends; infinity for no limit."""
        longest_s = self.limits.max_connection_age_s
        return self.dice.uniform(LEAST_AGE_SHARE * longest_s, longest_s) if longest_s else math.inf

    def refusal(self, error: VecmillError, default_headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """Return the response to what is no request, which closes the connection."""
        status, own_headers, body = self.refuse(error)
        headers = [*default_headers, *own_headers, (b"connection", b"close")]
        lines = [b"%s: %s\r\n" % header for header in headers]
        return b"".join([STATUS_LINE[status], *lines, b"\r\n", body])

    def note_head(self, scope: Scope) -> None:
        """Note in `scope`, for the trace of the request, that its head is complete now."""
        if self.is_traced:
            scope[HEAD_AT] = monotonic()
