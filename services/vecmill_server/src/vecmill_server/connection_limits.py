"""The limits on connections, and the objects that all connections of a server share."""

from dataclasses import dataclass, field

from vecmill_server.byte_budget import ByteBudget
from vecmill_server.metrics import ServerMetrics
from vecmill_server.settings import ServerSettings

# The most bytes that one read takes from a socket.
READ_BYTES = 64 * 1024


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
        """Return the limits in `settings`."""
        return cls(
            settings.max_connections,
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
    read_buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(READ_BYTES)))
