"""The limits on connections, and the objects that all connections of a server share."""

import math
import resource
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from vecmill.errors import VecmillError
from vecmill.values.clock import monotonic
from vecmill_server.byte_budget import ByteBudget
from vecmill_server.error_responses import error_response
from vecmill_server.metrics.server_metrics import ServerMetrics
from vecmill_server.middleware.request_contexts import NO_ROUTE
from vecmill_server.pipelining import PipelineTurns
from vecmill_server.settings import ServerSettings
from vecmill_server.tracing.trace import HEAD_AT

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

# The files that the process opens besides connections: models, batches, threads, refused connections.
OTHER_FILES = 256


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

    @classmethod
    def of(cls, settings: ServerSettings) -> "ConnectionLimits":
        """Return the limits in `settings`. The process must be able to open a file for each connection."""
        open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return cls(
            min(settings.max_connections, max(1, open_files - OTHER_FILES)),
            settings.max_header_bytes,
            settings.header_timeout_s,
            settings.body_timeout_s,
            settings.keep_alive_s,
            settings.write_timeout_s,
            settings.max_connection_age_s,
        )


@dataclass(frozen=True, slots=True)
class ConnectionShare:
    """The objects that all connections of a server share.

    The event loop reads one socket at a time, so one read buffer serves all connections.
    """

    limits: ConnectionLimits
    metrics: ServerMetrics
    budget: ByteBudget
    is_traced: bool = False
    turns: PipelineTurns = field(default_factory=PipelineTurns)
    dice: Random = field(default_factory=Random)
    read_buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(READ_BYTES)))

    def draw_age_s(self) -> float:
        """Return the age in seconds at which a new connection ends; infinity for no limit."""
        longest_s = self.limits.max_connection_age_s
        return self.dice.uniform(LEAST_AGE_SHARE * longest_s, longest_s) if longest_s else math.inf

    def refusal(self, error: VecmillError, default_headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """Return the response to what is no request, which closes the connection, and count it."""
        response = error_response(error)
        self.metrics.request_done(NO_ROUTE, response.status, 0.0)
        self.metrics.error_answered(response.reason)
        headers = [*default_headers, *response.headers, (b"connection", b"close")]
        lines = [b"%s: %s\r\n" % header for header in headers]
        return b"".join([STATUS_LINE[response.status], *lines, b"\r\n", response.body])

    def note_head(self, scope: Scope) -> None:
        """Note in `scope`, for the trace of the request, that its head is complete now."""
        if self.is_traced:
            scope[HEAD_AT] = monotonic()
