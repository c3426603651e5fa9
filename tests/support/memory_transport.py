"""Connections of the server over a transport in memory, which takes any bytes in any portions."""

import asyncio
import socket
from collections.abc import Mapping
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from vecmill_server.base.byte_budget import ByteBudget
from vecmill_server.base.settings import ServerSettings
from vecmill_server.http1.connection_limits import ConnectionShare
from vecmill_server.http1.protocol import HttpConnection
from vecmill_server.process.connections import share_connections
from vecmill_server.telemetry.metrics.server_metrics import ServerMetrics


class MemoryTransport(asyncio.Transport):
    """A transport that keeps what is written. The connection asks the socket `kernel` for its state."""

    def __init__(self, kernel: socket.socket | None = None) -> None:
        super().__init__()
        self._kernel = kernel
        self.written = bytearray()
        self.closed = False
        self.half_closed = False
        self.is_misused = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        known: Mapping[str, Any] = {
            "peername": ("127.0.0.1", 1),
            "sockname": ("127.0.0.1", 2),
            "socket": self._kernel,
        }
        return known.get(name, default)

    def write(self, data: Any) -> None:
        if self.half_closed:  # as the event loop does; the application's server writes it to the log
            self.is_misused = True
            raise RuntimeError("Cannot call write() after write_eof()")
        self.written += data

    def write_eof(self) -> None:
        self.half_closed = True

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0


def give(protocol: asyncio.Protocol | asyncio.BufferedProtocol, data: bytes) -> None:
    """Hand bytes to a protocol of either kind, as an event loop does."""
    if isinstance(protocol, asyncio.Protocol):
        protocol.data_received(data)
        return
    while data:
        buffer = memoryview(protocol.get_buffer(len(data)))
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        protocol.buffer_updated(size)
        data = data[size:]


def make_share(settings: ServerSettings | None = None) -> ConnectionShare:
    """What the connections of a server share."""
    return share_connections(settings or ServerSettings(), ServerMetrics(), ByteBudget(1 << 30))


def open_connection(
    app: ASGIApp,
    share: ConnectionShare,
    *,
    kernel: socket.socket | None = None,
    loop: asyncio.AbstractEventLoop | None = None,
) -> tuple[HttpConnection, MemoryTransport, ServerState]:
    """Open a connection to `app`."""
    config = uvicorn.Config(app, lifespan="off", log_config=None, proxy_headers=False)
    config.load()
    state = ServerState()
    transport = MemoryTransport(kernel)
    connection = HttpConnection(share, config=config, server_state=state, app_state={}, _loop=loop)
    connection.connection_made(transport)
    return connection, transport, state
