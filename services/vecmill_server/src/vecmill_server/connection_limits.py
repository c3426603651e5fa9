"""The limits on connections, and the objects that all connections of a server share."""

import resource
from dataclasses import dataclass, field

from starlette.types import Scope

from vecmill.values.clock import monotonic
from vecmill_server.byte_budget import ByteBudget
from vecmill_server.metrics.server_metrics import ServerMetrics
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

# The memory of a head, for each of its bytes. Heads of ordinary size are not counted.
HEAD_FACTOR = 4
ORDINARY_HEAD_BYTES = 2048

# The files that the process opens besides connections: models, batches, threads, refused connections.
OTHER_FILES = 256


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits on connections: their number, the size of headers, and the times of a client."""

    max_connections: int
    max_header_bytes: int
    header_timeout_s: float
    body_timeout_s: float
    keep_alive_s: float
    write_timeout_s: float

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
    read_buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(READ_BYTES)))

    def note_head(self, scope: Scope) -> None:
        """Note in `scope`, for the trace of the request, that its head is complete now."""
        if self.is_traced:
            scope[HEAD_AT] = monotonic()
