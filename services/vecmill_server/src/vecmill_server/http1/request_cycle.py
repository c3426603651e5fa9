"""One request and its response on a connection: the scope, `receive` and `send` of the ASGI application.

How it works. The connection stores the body as it arrives, and `receive` hands it over. If the application
neither calls `receive` nor watches the client, the connection stops reading from the socket. `send` writes
the response, and returns when the client has taken all but the last part of it. The status line and headers
are written together with the first bytes of the body.

An application that knows this server needs neither for a small request: it finds the request in the scope,
takes a body that arrived with its head (`take_body`) and writes a response as a whole (`answer`).
"""

import asyncio
import logging
import string
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, Protocol
from urllib.parse import unquote

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from vecmill.values.interruptions import INTERRUPTIONS
from vecmill_server.base.errors import HttpError
from vecmill_server.http1.client_output import ClientOutput
from vecmill_server.http1.request_head import RequestHead

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

# The keys of a scope below are absent where the application runs without this protocol.

# The `RequestCycle`, as long as it runs.
CYCLE = "vecmill.request_cycle"
# The time when the head of the request was complete, on the monotonic clock; only for traces.
HEAD_AT = "vecmill.head_at"
# The value of the first header of each name. `base.headers`, of which connections know nothing, has it too.
HEADER_INDEX = "vecmill.header_index"

# The connection stops reading while this much of a body waits for the application.
UNREAD_BYTES = 32 * 1024
# The headers of a response are written together with a part of the body that is not larger.
JOINED_BYTES = 64 * 1024

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

# The characters of a header's name, and those that a line must not have except its end.
_NAME_CHARACTERS = b"!#$%&'*+-.^_`|~" + string.digits.encode() + string.ascii_letters.encode()
_CONTROLS = bytes(code for code in (*range(32), 127) if code != ord("\t"))


def write_lines(headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return headers as the lines of a head.

    Raises `RuntimeError` for an invalid character, such as a line end inside a value.
    """
    lines = b"".join([b"%b: %b\r\n" % header for header in headers])
    names = [name for name, _ in headers]
    has_others = len(lines) - len(lines.translate(None, _CONTROLS)) != len(b"\r\n") * len(names)
    if has_others or b"" in names or b"".join(names).translate(None, _NAME_CHARACTERS):
        raise RuntimeError("A header of a response has an invalid character.")
    return lines


def split_lines(lines: bytes) -> list[tuple[bytes, bytes]]:
    """Return the headers of which `write_lines` has given the lines."""
    pairs = (line.partition(b": ") for line in lines.split(b"\r\n") if line)
    return [(name, value) for name, _, value in pairs]


def make_scope(head: RequestHead, state: dict[str, Any], addresses: Mapping[str, Any]) -> Scope:
    """Return the ASGI scope of a request. `addresses` are its `client` and `server`."""
    path = head.path.decode("ascii")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": head.version,
        "scheme": "http",
        "method": head.method,
        "path": unquote(path) if "%" in path else path,
        "raw_path": head.path,
        "query_string": head.query,
        "root_path": "",
        "headers": head.headers,
        "state": state,
        HEADER_INDEX: head.index,
        **addresses,
    }


class Connection(Protocol):
    """The connection, as a request sees it."""

    def resume_reading(self) -> None:
        """Read from the socket again."""
        ...

    def allow_body_time(self, seconds: float) -> None:
        """Set the time limit of the body that is arriving."""
        ...

    @property
    def is_at_end(self) -> bool:
        """True if the response that begins now should close the connection for its age."""
        ...

    def response_done(self) -> None:
        """Go on with the next request, or close."""
        ...


class RequestCycle:
    """The state of one request, from the end of its head to the end of its response."""

    has_whole_body = False  # that arrived with the head, and was not handed over
    is_disconnected = False
    is_response_started = False
    is_response_complete = False
    _body: bytes | bytearray = b""
    _has_more_body = True
    _error: HttpError | None = None
    _has_news = False  # for `receive`
    _news: asyncio.Event | None = None  # of a `receive` that waits
    # Called if the client disconnects. A task that waits for `receive` would find out too, and take longer
    # than the rest of a small request.
    on_leave: Callable[[], None] | None = None
    # Called when the application has ended.
    on_end: Callable[[], None] | None = None
    # The response.
    _start = b""  # the status line and headers, until they are written
    _bytes_left: int | None = None  # `None` if the response is chunked

    def __init__(
        self,
        head: RequestHead,
        scope: Scope,
        connection: Connection,
        output: ClientOutput,
        default_lines: bytes = b"",
        body: bytes | None = None,
    ) -> None:
        """`default_lines` are those of the headers that every response has, beside its own.

        `body` is the whole body if it arrived with the head.
        """
        self.keeps_alive = head.keeps_alive
        self._scope = scope
        self._connection = connection
        self._output = output
        self._default_lines = default_lines
        self._has_no_response_body = head.method == "HEAD"
        self._is_modern = head.version == "1.1"
        self._may_continue = head.expects_continue and self._is_modern
        if body is not None:
            self._body, self._has_more_body, self._has_news = body, False, True
            self.has_whole_body = not self._may_continue
        scope[CYCLE] = self

    # Called by the connection.

    @property
    def unread_bytes(self) -> int:
        """The bytes of the body that the application has not received yet."""
        return len(self._body)

    @property
    def may_probe(self) -> bool:
        """True if an interim response can be written now."""
        return self._is_modern and not self.is_response_started

    def add_body(self, data: bytes) -> None:
        """Add bytes to the body."""
        if self.is_response_complete or not data:
            return
        if not self._body:
            self._body = data
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += data
        self._wake()

    def end_body(self) -> None:
        """End the body."""
        self._has_more_body = False
        self._wake()

    def fail(self, error: HttpError) -> None:
        """Make the next `receive` raise `error`, because the rest of the body is not valid."""
        self._error = error
        self.keeps_alive = False
        self._wake()

    def disconnect(self) -> None:
        """Tell the application that the client is gone."""
        self.is_disconnected = not self.is_response_complete
        self.has_whole_body = False
        self._wake()
        if self.is_disconnected and self.on_leave is not None:
            self.on_leave()

    async def run(self, app: Application) -> None:
        """Run the application for this request."""
        try:
            await app(self._scope, self.receive, self.send)
        except INTERRUPTIONS:
            self._output.abort()
            raise
        except BaseException:
            logger.exception("the application failed after its response had begun")
            self._output.abort()
        else:
            if not self.is_response_complete and not self.is_disconnected:
                logger.error("the application ended without a complete response")
                self._output.abort()
        finally:
            # The scope and this object would keep each other until the garbage collector finds them.
            self._scope.pop(CYCLE, None)
            if self.on_end is not None:
                self.on_end()
                self.on_end = None

    # Called by an application that knows this server.

    def take_body(self) -> bytes | bytearray:
        """Return the body if it `has_whole_body`."""
        body, self._body, self._has_news, self.has_whole_body = self._body, b"", False, False
        return body

    def allow_body_time(self, seconds: float) -> None:
        """Set the seconds in which the client must send the body from now on.

        If they pass, `receive` raises `RequestTimedOut`.
        """
        self._connection.allow_body_time(seconds)

    def answer(self, status: int, lines: bytes, body: bytes) -> Awaitable[None] | None:
        """Write a whole response. Return what to wait for, `None` if the client has taken enough of it.

        `lines` are those of its headers, with the length of `body`, and without `connection`.
        """
        if self.is_disconnected:
            return None
        self._make_start(status, lines, len(body), closes=False)
        self._write_body(body, has_more=False)
        if self._output.flow.write_paused:
            return self._end_when_taken()
        self._end_response()
        return None

    # Called by any application.

    async def receive(self) -> Message:
        """Return the next part of the body, or `http.disconnect`. Raises the error of an invalid body."""
        if self._may_continue:
            self._may_continue = False
            self._output.write(CONTINUE)
        if not (self.is_disconnected or self.is_response_complete):
            self._connection.resume_reading()
            if not self._has_news:
                await self._wait()
            self._has_news = False
        if self.is_disconnected or self.is_response_complete:
            return {"type": "http.disconnect"}
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        body, self._body, self.has_whole_body = self._body, b"", False
        return {"type": "http.request", "body": bytes(body), "more_body": self._has_more_body}

    async def _wait(self) -> None:
        self._news = self._news or asyncio.Event()
        self._news.clear()
        await self._news.wait()

    def _wake(self) -> None:
        self._has_news = True
        if self._news is not None:
            self._news.set()

    async def send(self, message: Message) -> None:
        """Write a part of the response, and wait until the client has taken most of it."""
        if self.is_disconnected:
            return
        if message["type"] == "http.response.start":
            self._start_response(message["status"], message["headers"])
            return
        if self.is_response_complete or not self.is_response_started:
            raise RuntimeError("A part of a response was sent before its start or after its end.")
        has_more = message.get("more_body", False)
        self._write_body(message.get("body", b""), has_more=has_more)
        if has_more:
            await self._output.drain()
            await asyncio.sleep(0)  # otherwise others would wait while a fast client takes a large response
        else:
            await self._end_when_taken()

    async def _end_when_taken(self) -> None:
        await self._output.drain()
        if not self.is_disconnected:
            self._end_response()

    def _end_response(self) -> None:
        self.is_response_complete = True
        self._body = b""  # the application did not read the rest
        if self._news is not None:
            self._news.set()
        self._connection.response_done()

    def _start_response(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        pairs = [(name, value) for name, value in headers]
        length = dict(pairs).get(b"content-length")
        closes = any(name == b"connection" and value.lower() == b"close" for name, value in pairs)
        self._make_start(status, write_lines(pairs), None if length is None else int(length), closes)

    def _make_start(self, status: int, lines: bytes, length: int | None, closes: bool) -> None:
        """Make the status line and the headers, which are written with the first bytes of the body.

        `lines` are the headers. One of them is `connection: close` if the response `closes`, and one is the
        length of its body, unless that is `None`.
        """
        if self.is_response_started:
            raise RuntimeError("A response was started twice.")
        # A client that waits for `100 Continue`, and gets this response instead, may send the body or leave
        # it out. The server cannot tell the body from the next request.
        is_body_optional = self._may_continue and self._has_more_body
        self.keeps_alive = (
            self.keeps_alive and not closes and not is_body_optional and not self._connection.is_at_end
        )
        framing = b"" if self.keeps_alive or closes else b"connection: close\r\n"
        if self._has_no_response_body or status in (204, 304):
            self._has_no_response_body = True
        elif length is None:
            framing += b"transfer-encoding: chunked\r\n"
        self._bytes_left = length
        self.is_response_started = True
        self._may_continue = False
        self._start = b"".join((STATUS_LINE[status], self._default_lines, lines, framing, b"\r\n"))

    def _write_body(self, body: bytes, *, has_more: bool) -> None:
        data = body
        if self._has_no_response_body:
            data = b""
        elif self._bytes_left is None:
            data = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            data += b"" if has_more else b"0\r\n\r\n"
        else:
            self._bytes_left -= len(body)
            if self._bytes_left < 0 or (self._bytes_left and not has_more):
                raise RuntimeError("The response is not as long as its Content-Length.")
        start, self._start = self._start, b""
        if start and len(data) > JOINED_BYTES:
            self._output.write(start)
        else:
            data = start + data
        if data:
            self._output.write(data)
