"""The HTTP/1.1 protocol of a connection: uvicorn's, with limits on the size and time of headers and bodies.

How it works. uvicorn feeds incoming bytes to httptools' parser, which calls back as it recognises
the parts of a request. uvicorn starts the application when the headers are complete. uvicorn limits
neither the size of the headers nor their time, and answers invalid HTTP in plain text. This protocol adds:

Head    The bytes of the request line and headers are counted while they arrive, and counted exactly
        when they are complete. A request over the limit is answered with 431.
Time    A timer runs while the server waits for the client: from the connection to the end of the
        first headers, and after each packet that leaves a request unfinished, until the headers and
        then the body are complete. A request in one packet, the usual case, needs no timer. A route
        that accepts uploads extends the time through the scope.
Refusal Errors have the same JSON body as elsewhere. A refused client may still be sending, and
        closing a socket with unread bytes resets the connection, so that the response can be lost.
        Therefore the server closes its sending side, discards further input, and then closes the socket.
Upgrade Clients may offer another protocol, as Java's client does with its first request. The parser would
        treat the body as that protocol, so the `Upgrade` header is renamed before the parser reads it.

Rules:
1. A response is never written into another response. If a request is refused while an earlier request of
   the same connection is being answered, the connection closes after the earlier response.
2. A timer that fires while the server has paused reading starts again, because the client is not at fault.
"""

import asyncio
import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from vecmill_server.error_responses import error_response
from vecmill_server.errors import HeadersTooLarge, HttpError, MalformedRequest, RequestTimedOut
from vecmill_server.listener import has_unread_bytes
from vecmill_server.metrics import ServerMetrics
from vecmill_server.middleware.request_contexts import NO_ROUTE
from vecmill_server.request_context import BODY_TIME
from vecmill_server.settings import ServerSettings

# The time and the bytes for which the input of a refused client is discarded.
LINGER_S = 2.0
LINGER_BYTES = 64 * 1024 * 1024

# The application's time limit for a body comes first, and sends a response. The protocol only closes.
BODY_GRACE_S = 5.0


class RequestPart(Enum):
    """The part of a request that is arriving."""

    NONE = auto()
    HEAD = auto()
    BODY = auto()


@dataclass(frozen=True, slots=True)
class HeadLimits:
    """The limits on a connection: the size and time of headers, and the time of a body."""

    max_header_bytes: int
    header_timeout_s: float
    body_timeout_s: float

    @classmethod
    def of(cls, settings: ServerSettings) -> "HeadLimits":
        """Return the limits in `settings`."""
        return cls(settings.max_header_bytes, settings.header_timeout_s, settings.body_timeout_s)


_UPGRADE = re.compile(rb"\r\nupgrade[ \t]*:", re.IGNORECASE)


def decline_upgrade(packet: bytes) -> bytes:
    """Return the packet with the header `Upgrade`, if its headers have one, renamed."""
    end = packet.find(b"\r\n\r\n")
    found = _UPGRADE.search(packet, 0, len(packet) if end < 0 else end)
    if found is None:
        return packet
    return packet[: found.start()] + b"\r\nx-declined-upgrade:" + packet[found.end() :]


class LimitedProtocol(HttpToolsProtocol):
    """The protocol of one connection, described in the docstring of this module."""

    def __init__(self, *, limits: HeadLimits, metrics: ServerMetrics, **uvicorn_arguments: Any) -> None:
        super().__init__(**uvicorn_arguments)
        self._limits = limits
        self._metrics = metrics
        self._part = RequestPart.NONE
        self._body_timeout_s = limits.body_timeout_s
        self._arrived_head_bytes = 0  # of incomplete headers
        self._head_bytes = 0  # as counted by the parser
        self._deadline: asyncio.TimerHandle | None = None
        self._refusal: HttpError | None = None
        self._linger_bytes_left = LINGER_BYTES
        self._is_lingering = False

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self._start_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_lingering:
            self._discard(data)
            return
        if self._part is not RequestPart.BODY:
            self._arrived_head_bytes += len(data)
            data = decline_upgrade(data)
        super().data_received(data)
        if self.transport.is_closing() or self._is_refused():
            return
        if self._arrived_head_bytes > self._limits.max_header_bytes:
            self._refusal = self._headers_too_large()
            self.send_400_response("")
            return
        if self._deadline is None and self._waits_for_client():
            self._start_deadline()

    def shutdown(self) -> None:
        if not self._is_lingering:  # otherwise the timer closes the connection
            super().shutdown()

    @property
    def is_arriving(self) -> bool:
        """True if the headers of a request have begun to arrive, or bytes of them wait in the kernel."""
        if self._is_lingering or self.transport.is_closing():
            return False
        return self._part is RequestPart.HEAD or has_unread_bytes(self.transport)

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._part = RequestPart.HEAD
        self._head_bytes = 0
        self._body_timeout_s = self._limits.body_timeout_s
        self.scope[BODY_TIME] = self._allow_body_time  # type: ignore[literal-required]

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._head_bytes += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._head_bytes += len(name) + len(value) + 4  # ": " and the end of the line

    def on_headers_complete(self) -> None:
        if self._head_bytes > self._limits.max_header_bytes:
            self._refusal = self._headers_too_large()
            raise self._refusal  # stops the parser; uvicorn then calls `send_400_response`
        super().on_headers_complete()
        self._part = RequestPart.BODY
        self._arrived_head_bytes = 0
        self._stop_deadline()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._part = RequestPart.NONE
        self._stop_deadline()

    def send_400_response(self, msg: str) -> None:
        """Refuse the request, with `_refusal` if it is set. uvicorn calls this when the parser fails."""
        if self._answers_earlier_request():
            self.cycle.keep_alive = False
            self.flow.pause_reading()
            return
        self._refuse(self._refusal or MalformedRequest("This is not a valid HTTP/1.1 request."))

    # Limits and refusals.

    def _is_refused(self) -> bool:
        return self._is_lingering

    def _answers_earlier_request(self) -> bool:
        """Return True while a request whose body is complete is still being answered."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete and self._part is not RequestPart.BODY

    def _waits_for_client(self) -> bool:
        return self._part is not RequestPart.NONE or not self._answers_earlier_request()

    def _headers_too_large(self) -> HeadersTooLarge:
        return HeadersTooLarge(f"The headers are larger than {self._limits.max_header_bytes} bytes.")

    def _refuse(self, error: HttpError) -> None:
        response = error_response(error)
        self._metrics.request_done(NO_ROUTE, response.status, 0.0)
        self._metrics.error_answered(response.reason)
        headers = [*self.server_state.default_headers, *response.headers, (b"connection", b"close")]
        lines = [b"%s: %s\r\n" % header for header in headers]
        self.transport.write(b"".join([STATUS_LINE[response.status], *lines, b"\r\n", response.body]))
        self._linger()

    def _linger(self) -> None:
        self._is_lingering = True
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._stop_deadline()
        self._deadline = self.loop.call_later(LINGER_S, self.transport.close)

    def _discard(self, data: bytes) -> None:
        self._linger_bytes_left -= len(data)
        if self._linger_bytes_left < 0:
            self.transport.close()

    def _start_deadline(self) -> None:
        limits = self._limits
        body_s = self._body_timeout_s + BODY_GRACE_S
        seconds = body_s if self._part is RequestPart.BODY else limits.header_timeout_s
        self._deadline = self.loop.call_later(seconds, self._on_deadline)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _allow_body_time(self, seconds: float) -> None:
        """Set the time limit of the body that is arriving."""
        if self._part is not RequestPart.BODY:  # the body is complete
            return
        self._body_timeout_s = seconds
        if self._deadline is not None:
            self._stop_deadline()
            self._start_deadline()

    def _on_deadline(self) -> None:
        self._deadline = None
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self._start_deadline()
        elif self._part is RequestPart.BODY or self._answers_earlier_request():
            self.transport.close()
        else:
            seconds = self._limits.header_timeout_s
            self._refuse(RequestTimedOut(f"The headers did not arrive within {seconds:g} seconds."))
