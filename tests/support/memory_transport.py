"""Connections of the server over a transport in memory, which takes any bytes in any portions."""

import asyncio
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from vecmill.errors import VecmillError
from vecmill_server.base.byte_budget import ByteBudget
from vecmill_server.base.error_responses import error_response
from vecmill_server.base.errors import HttpError
from vecmill_server.base.headers import HeaderList
from vecmill_server.http1.connection_limits import ConnectionLimits, ConnectionShare
from vecmill_server.http1.protocol import HttpConnection

LIMITS = ConnectionLimits(
    max_connections=1_000,
    max_header_bytes=16_384,
    header_timeout_s=10.0,
    body_timeout_s=30.0,
    keep_alive_s=75.0,
    write_timeout_s=30.0,
    max_connection_age_s=0.0,
)


class ManualTime:
    """The running event loop, whose time and timers the test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.timers: list[asyncio.TimerHandle] = []
        self._loop = asyncio.get_running_loop()

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> object:
        timer = asyncio.TimerHandle(self.now + delay, callback, arguments, self._loop)
        self.timers.append(timer)
        return timer

    def advance(self, seconds: float) -> None:
        """Move the time, and run the timers that are due, each at its time."""
        end = self.now + seconds
        while due := [timer for timer in self.timers if not timer.cancelled() and timer.when() <= end]:
            timer = min(due, key=asyncio.TimerHandle.when)
            self.timers.remove(timer)
            self.now = max(self.now, timer.when())
            timer._run()
        self.now = end

    def __getattr__(self, name: str) -> object:
        return getattr(self._loop, name)


@dataclass(slots=True)
class Application:
    """An application that reads the body, notes the request, and answers with status 200 and no body."""

    requests: list[tuple[str, str, bytes]] = field(default_factory=list)
    broken: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, has_more, status = b"", True, 200
        while has_more and status == 200:
            try:
                message = await receive()
            except HttpError:
                self.broken += 1
                status = 400
                continue
            if message["type"] == "http.disconnect":
                return
            body, has_more = body + message["body"], message["more_body"]
        if status == 200:
            query = scope["query_string"]
            target = scope["raw_path"] + (b"?" + query if query else b"")
            self.requests.append((scope["method"], target.decode(), body))
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})


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


def make_share(limits: ConnectionLimits = LIMITS, **others: Any) -> ConnectionShare:
    """What the connections of a server share."""

    def refuse(error: VecmillError) -> tuple[int, HeaderList, bytes]:
        response = error_response(error)
        return response.status, response.headers, response.body

    return ConnectionShare(limits, ByteBudget(1 << 30), refuse, **others)


def open_connection(
    app: ASGIApp,
    share: ConnectionShare,
    *,
    kernel: socket.socket | None = None,
    loop: asyncio.AbstractEventLoop | ManualTime | None = None,
) -> tuple[HttpConnection, MemoryTransport, ServerState]:
    """Open a connection to `app`."""
    config = uvicorn.Config(app, lifespan="off", log_config=None, proxy_headers=False)
    config.load()
    state = ServerState()
    transport = MemoryTransport(kernel)
    connection = HttpConnection(share, config=config, server_state=state, app_state={}, _loop=cast(Any, loop))
    connection.connection_made(transport)
    return connection, transport, state
