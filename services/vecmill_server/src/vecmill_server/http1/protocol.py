"""The HTTP/1.1 protocol of a connection, with limits on sizes, times and bytes.

How it works. uvicorn starts and stops the server, and creates a `HttpConnection` for each connection. The
connection reads one request at a time, in the parts of `request_part`.

Rules:
1. A response is never written into another response. A head that began to arrive before the earlier request
   was answered, and is invalid, closes the connection without a response.
2. A client must send within a time: the head in `header_timeout_s`, the body in `body_timeout_s`, the next
   request in `keep_alive_s`. A time that ends while the server has paused reading starts again, because the
   client is not at fault.
3. A client must take a response within a time, which `client_output` describes.
4. A client that closes its sending side after a complete request gets its response. It may also be gone:
   `half_closed` finds out.
5. A request that arrived before the earlier one was answered waits for its turn (`pipelining`).
6. A connection that has reached its longest age ends with its next response, which says `connection: close`.
   It does not end while bytes of a next request wait: the client would have to send that request again.
"""

import asyncio
from typing import Any, cast

from uvicorn import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.utils import get_local_addr, get_remote_addr
from uvicorn.server import ServerState

from vecmill.errors import VecmillError
from vecmill_server.base.errors import HttpError, RequestTimedOut, TooManyConnections
from vecmill_server.http1.body_framing import BodyFraming, ChunkedBody, CountedBody
from vecmill_server.http1.client_output import ClientOutput
from vecmill_server.http1.connection_limits import (
    BODY_GRACE_S,
    EXTRA_CONNECTIONS,
    HEAD_FACTOR,
    LINGER_BYTES,
    LINGER_S,
    ORDINARY_HEAD_BYTES,
    PENDING_BYTES,
    ConnectionShare,
)
from vecmill_server.http1.deadline import Deadline
from vecmill_server.http1.half_closed import HalfClosedWatch, has_unread_bytes
from vecmill_server.http1.request_cycle import CONTINUE, UNREAD_BYTES, RequestCycle, make_scope
from vecmill_server.http1.request_head import HeadReader, RequestHead
from vecmill_server.http1.request_part import RequestPart
from vecmill_server.http1.scope_keys import BODY_TIME


class HttpConnection(asyncio.BufferedProtocol):
    """The protocol of one connection, described in the docstring of this module."""

    def __init__(
        self,
        share: ConnectionShare,
        *,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._share = share
        self._limits = share.limits
        self._app = config.loaded_app
        self._server_state = server_state
        self._app_state = app_state
        self._loop = _loop or asyncio.get_event_loop()
        self._transport: asyncio.Transport = None  # type: ignore[assignment]  # set by `connection_made`
        self._flow: FlowControl = None  # type: ignore[assignment]
        self._output: ClientOutput = None  # type: ignore[assignment]
        self._addresses: dict[str, Any] = {}
        self._held = share.budget.hold()
        self._is_stopping = False
        self._ends_at = self._loop.time() + share.draw_age_s()
        self._idle_since = self._loop.time()
        self._half_closed: HalfClosedWatch | None = None
        # The request.
        self._part = RequestPart.HEAD
        self._head: HeadReader | None = None
        self._is_head_timed = True
        self._is_pipelined = False
        self._body: BodyFraming | None = None
        self._body_timeout_s = self._limits.body_timeout_s
        self._cycle: RequestCycle | None = None
        self._pending = bytearray()  # of the next request
        self._waits_for_turn = False
        self._discarded_bytes = 0
        self._input_deadline = Deadline(self._loop, self._on_input_deadline)

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's has another base class
        self._flow = FlowControl(transport)
        self._output = ClientOutput(transport, self._flow, self._loop, self._limits.write_timeout_s)
        self._addresses = {"server": get_local_addr(transport), "client": get_remote_addr(transport)}
        connections, most = self._server_state.connections, self._limits.max_connections
        if len(connections) >= most + EXTRA_CONNECTIONS:
            transport.abort()
            return
        connections.add(self)  # type: ignore[arg-type]
        if len(connections) > most:
            self._refuse(TooManyConnections(f"The server has {most} connections already. Try again later."))
        else:
            self._input_deadline.set(self._limits.header_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server_state.connections.discard(self)
        self._input_deadline.close()
        self._output.close()
        self._stop_watching()
        self._held.release()
        self._pending.clear()
        self._head = self._body = None
        if self._cycle is not None:
            self._cycle.disconnect()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._share.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._read(bytes(self._share.read_buffer[:nbytes]))

    def eof_received(self) -> bool:
        """Return True to keep the sending side open."""
        cycle = self._cycle
        is_done = cycle is None or (cycle.is_response_complete and not self._waits_for_turn)
        if is_done or self._part is RequestPart.BODY:
            return False
        self._half_closed = HalfClosedWatch(self._transport, self._probe)
        return self._waits_for_turn or self._half_closed.start()

    def pause_writing(self) -> None:
        self._flow.pause_writing()

    def resume_writing(self) -> None:
        self._flow.resume_writing()

    # Called by uvicorn's server.

    def shutdown(self) -> None:
        """Close the connection after the request that has begun, for a stop of the server."""
        self._is_stopping = True
        self._output.hurry()
        if self._cycle is not None and not self._cycle.is_response_complete:
            self._cycle.keeps_alive = False
        elif self._part is not RequestPart.REFUSED and not self._waits_for_turn:
            self._transport.close()  # in the other cases the deadline or the next response closes it

    @property
    def idle_s(self) -> float:
        """The seconds since the last response ended, or since the connection was made."""
        return self._loop.time() - self._idle_since

    @property
    def is_arriving(self) -> bool:
        """True if a head has begun to arrive, or bytes of it wait in the kernel."""
        has_begun = self._head is not None and self._head.byte_count > 0  # empty lines do not count
        is_over = self._part is RequestPart.REFUSED or self._transport.is_closing()
        return not is_over and (has_begun or has_unread_bytes(self._transport))

    # The reading of requests.

    def _read(self, data: bytes) -> None:
        while data:
            if self._part is RequestPart.HEAD:
                data = self._read_head(data)
            elif self._part is RequestPart.BODY:
                data = self._read_body(data)
            elif self._part is RequestPart.ANSWER:
                self._keep_for_later(data)
                return
            else:
                self._discard(len(data))
                return

    def _read_head(self, data: bytes) -> bytes:
        reader = self._head
        if reader is None:
            reader = self._head = HeadReader(self._limits.max_header_bytes)
        try:
            head, rest = reader.feed(data)
        except HttpError as error:
            self._refuse_head(error)
            return b""
        if head is not None:
            self._head = None
            self._begin_request(head, reader.byte_count, rest)
            return rest
        if reader.byte_count and not self._is_head_timed:
            self._is_head_timed = True
            self._input_deadline.set(self._limits.header_timeout_s)
        self._hold_head(reader.byte_count)
        return b""

    def _begin_request(self, head: RequestHead, head_bytes: int, arrived: bytes) -> None:
        self._is_pipelined = False
        self._hold_head(head_bytes)
        scope = make_scope(head, self._app_state.copy(), self._addresses)
        scope[BODY_TIME] = self._allow_body_time
        self._share.note_head(scope)
        default_headers = self._server_state.default_headers
        self._cycle = cycle = RequestCycle(head, scope, self, self._output, default_headers)
        if self._is_stopping:
            cycle.keeps_alive = False
        length = head.content_length
        self._input_deadline.clear()
        if length == 0:
            cycle.end_body()
            self._part = RequestPart.ANSWER
        else:
            self._part = RequestPart.BODY
            self._body_timeout_s = self._limits.body_timeout_s
            self._body = ChunkedBody(self._limits.max_header_bytes) if length is None else CountedBody(length)
            if length is None or length > len(arrived):
                self._time_body()
        task = self._loop.create_task(cycle.run(self._app))
        self._server_state.tasks.add(task)
        task.add_done_callback(self._server_state.tasks.discard)

    def _read_body(self, data: bytes) -> bytes:
        cycle, framing = self._cycle, self._body
        assert cycle is not None
        assert framing is not None
        try:
            body, rest = framing.feed(data)
        except HttpError as error:
            self._fail_body(error)
            return b""
        if cycle.is_response_complete:
            self._discard(len(body))
        cycle.add_body(body)
        if rest is None:
            if cycle.unread_bytes > UNREAD_BYTES and not cycle.is_response_complete:
                self._flow.pause_reading()
            return b""
        self._body = None
        self._input_deadline.clear()
        cycle.end_body()
        if cycle.is_response_complete:
            self._next_request()
        else:
            self._part = RequestPart.ANSWER
        return rest

    def _keep_for_later(self, data: bytes) -> None:
        self._pending += data
        self._held.add(len(data))
        if len(self._pending) > PENDING_BYTES:
            self._flow.pause_reading()

    def _discard(self, count: int) -> None:
        self._discarded_bytes += count
        if self._discarded_bytes > LINGER_BYTES:
            self._transport.close()

    def _hold_head(self, count: int) -> None:
        self._hold(HEAD_FACTOR * count if count > ORDINARY_HEAD_BYTES else 0)

    def _hold(self, count: int) -> None:
        self._held.add(count - self._held.count)

    # Called by the request cycle.

    def resume_reading(self) -> None:
        if self._half_closed is None and len(self._pending) <= PENDING_BYTES:
            self._flow.resume_reading()

    def response_done(self) -> None:
        self._server_state.total_requests += 1
        self._idle_since = self._loop.time()
        self._stop_watching()
        if self._transport.is_closing():
            return
        cycle = self._cycle
        assert cycle is not None
        self._hold(len(self._pending))
        if not cycle.keeps_alive:
            self._close_gently()
        elif self._part is RequestPart.ANSWER:
            if self._pending:
                self._waits_for_turn = True
                self._share.turns.wait(self._loop, self._take_turn)
            else:
                self._next_request()
        elif self._half_closed is None:
            self._flow.resume_reading()  # to discard the rest of the body

    @property
    def is_at_end(self) -> bool:
        """True if the connection has reached its longest age, and no bytes of a next request wait."""
        return (
            self._loop.time() >= self._ends_at
            and self._part is RequestPart.ANSWER
            and not (self._pending or self._transport.is_closing() or has_unread_bytes(self._transport))
        )

    # Between requests, and the end.

    def _take_turn(self) -> None:
        self._waits_for_turn = False
        if not self._transport.is_closing():
            self._next_request()

    def _next_request(self) -> None:
        """Read the next request, of which a part may have arrived."""
        self._part = RequestPart.HEAD
        self._cycle = None
        self._is_head_timed = False
        self._discarded_bytes = 0
        if self._pending:
            self._is_pipelined = True
            data = bytes(self._pending)
            self._pending.clear()
            self._hold(0)
            self._read(data)
        if self._half_closed is not None:
            is_cut = self._part in (RequestPart.HEAD, RequestPart.BODY)  # and no more bytes will arrive
            if is_cut or not self._half_closed.start():
                self._transport.close()
        elif self._part is not RequestPart.HEAD:
            self.resume_reading()
        else:
            self._flow.resume_reading()
            if not self._is_head_timed:
                self._input_deadline.set(self._limits.keep_alive_s)

    def _refuse_head(self, error: HttpError) -> None:
        if self._is_pipelined:
            self._linger()
        else:
            self._refuse(error)

    def _fail_body(self, error: HttpError) -> None:
        cycle = self._cycle
        assert cycle is not None
        self._part = RequestPart.REFUSED
        self._body = None
        self._input_deadline.clear()
        self._flow.pause_reading()  # until the response is written
        cycle.fail(error)
        if cycle.is_response_complete:
            self._linger()

    def _refuse(self, error: VecmillError) -> None:
        self._output.write(self._share.refusal(error, self._server_state.default_headers))
        self._linger()

    def _close_gently(self) -> None:
        """Close the connection, so that a client that is still sending can read the response."""
        is_old = self._loop.time() >= self._ends_at  # its client may be sending another request
        may_send = self._part is not RequestPart.ANSWER or bool(self._pending) or is_old
        if self._half_closed is not None or not may_send:
            self._transport.close()
        else:
            self._linger()

    def _linger(self) -> None:
        self._part = RequestPart.REFUSED
        self._head = self._body = None
        self._pending.clear()
        self._hold(0)
        self._flow.resume_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._input_deadline.set(LINGER_S)

    # Times.

    def _time_body(self) -> None:
        self._input_deadline.set(self._body_timeout_s + BODY_GRACE_S)

    def _allow_body_time(self, seconds: float) -> None:
        """Set the time limit of the body that is arriving."""
        if self._part is RequestPart.BODY:
            self._body_timeout_s = seconds
            self._time_body()

    def _on_input_deadline(self) -> None:
        if self._transport.is_closing():
            return
        if self._part is RequestPart.BODY and self._flow.read_paused:
            self._time_body()
        elif self._part is RequestPart.HEAD and self._is_head_timed:
            seconds = self._limits.header_timeout_s
            self._refuse_head(RequestTimedOut(f"The headers did not arrive within {seconds:g} seconds."))
        elif self._part is not RequestPart.ANSWER:
            self._transport.close()

    # Clients that closed their sending side.

    def _probe(self) -> None:
        if self._cycle is not None and self._cycle.may_probe:
            self._output.write(CONTINUE)

    def _stop_watching(self) -> None:
        if self._half_closed is not None:
            self._half_closed.stop()
