"""The HTTP/1.1 protocol of a connection, with limits on sizes, times and bytes.

How it works. uvicorn starts and stops the server, and creates a `HttpConnection` for each connection. The
connection reads one request at a time. What it does with the bytes that arrive, and how long it waits for
them, depends on its state (`time_limits`).

Rules:
1. A response is never written into another response. A head that began to arrive before the earlier request
   was answered, and is invalid, closes the connection without a response.
2. A client must send within the time of each state. The time of a body stands still while the server has
   paused reading, because the client is not at fault then.
3. A client must take a response within a time, which `client_output` describes.
4. A client that closes its sending side after a complete request gets its response. It may also be gone:
   `client_output` finds out.
5. A request that arrived before the earlier one was answered waits for its turn (`PipelineTurns`).
6. A connection that has reached its longest age ends with its next response, which says `connection: close`.
   It does not end while bytes of a next request wait: the client would have to send that request again.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, ClassVar, cast

from uvicorn import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.utils import get_local_addr, get_remote_addr
from uvicorn.server import ServerState

from vecmill.errors import VecmillError
from vecmill_server.base.errors import HttpError, RequestTimedOut, TooManyConnections
from vecmill_server.http1.body_framing import BodyFraming, ChunkedBody, CountedBody
from vecmill_server.http1.client_output import ClientOutput, HalfClosedWatch, has_unread_bytes
from vecmill_server.http1.connection_limits import (
    EXTRA_CONNECTIONS,
    HEAD_FACTOR,
    LINGER_BYTES,
    ORDINARY_HEAD_BYTES,
    PENDING_BYTES,
    ConnectionShare,
)
from vecmill_server.http1.request_cycle import (
    CONTINUE,
    HEAD_AT,
    UNREAD_BYTES,
    RequestCycle,
    make_scope,
    write_lines,
)
from vecmill_server.http1.request_head import HeadReader, RequestHead, read_ordinary_head
from vecmill_server.http1.time_limits import Deadline, Late, State

# The headers that every response has change with each second.
_write_once = lru_cache(maxsize=2)(write_lines)


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
        self._state = State.HEAD
        self._deadline = Deadline(self._loop, self._on_deadline)  # of the state
        self._head: HeadReader | None = None
        self._body: BodyFraming | None = None
        self._body_timeout_s = 0.0
        self._cycle: RequestCycle | None = None
        self._pending = bytearray()  # of the next request
        self._discarded_bytes = 0

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
            self._enter(State.HEAD)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server_state.connections.discard(self)
        self._deadline.close()
        self._output.close()
        if self._half_closed is not None:
            self._half_closed.stop()
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
        if self._state not in (State.ANSWER, State.TURN, State.FAILED):
            return False
        self._half_closed = HalfClosedWatch(self._transport, self._loop, self._probe)
        return self._state is State.TURN or self._half_closed.start()

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
        elif self._state not in (State.TURN, State.LINGER):
            self._transport.close()  # in the other cases the next response or the deadline closes it

    @property
    def has_rested(self) -> bool:
        """True if no request is arriving, or to be expected so long after the last response (`pauses`)."""
        idle_s = self._loop.time() - self._idle_since  # while a request is answered, `shutdown` waits for it
        return idle_s >= self._share.pauses.patience_s and not self._is_arriving

    @property
    def _is_arriving(self) -> bool:
        """True if a head has begun to arrive, or bytes of it wait in the kernel."""
        has_begun = self._head is not None and self._head.byte_count > 0  # empty lines do not count
        is_over = self._state in (State.FAILED, State.LINGER) or self._transport.is_closing()
        return not is_over and (has_begun or has_unread_bytes(self._transport))

    # The reading of requests.

    def _read(self, data: bytes) -> None:
        """Hand `data` to the methods of `_READERS`, which return what belongs to the next state."""
        while data:
            data = self._READERS[self._state](self, data)

    def _read_head(self, data: bytes) -> bytes:
        reader, most_bytes = self._head, self._limits.max_header_bytes
        if reader is None:
            ordinary = read_ordinary_head(data, min(most_bytes, ORDINARY_HEAD_BYTES))
            if ordinary is not None:
                if self._held.count:
                    self._hold(0)
                return self._begin_request(*ordinary)
            reader = self._head = HeadReader(most_bytes)
        try:
            head, rest = reader.feed(data)
        except HttpError as error:
            if self._state is State.EARLY_HEAD:
                self._linger()
            else:
                self._refuse(error)
            return b""
        size = reader.byte_count
        if size > ORDINARY_HEAD_BYTES or self._held.count:
            self._hold(HEAD_FACTOR * size if size > ORDINARY_HEAD_BYTES else 0)
        if head is not None:
            self._head = None
            return self._begin_request(head, rest)
        if self._state is State.IDLE and reader.byte_count:
            self._enter(State.HEAD)
        elif self._state is State.EARLY_HEAD and not reader.byte_count:
            self._enter(State.IDLE)
        return b""

    def _begin_request(self, head: RequestHead, arrived: bytes) -> bytes:
        """Start the application, and return the bytes after the part of the body that has arrived."""
        pauses, pause_s = self._share.pauses, self._loop.time() - self._idle_since
        if pause_s > pauses.longest_s:
            pauses.note(pause_s)
        scope = make_scope(head, self._app_state.copy(), self._addresses)
        if self._share.trace_clock is not None:
            scope[HEAD_AT] = self._share.trace_clock()
        default_lines = _write_once(tuple(self._server_state.default_headers))
        length, body = head.content_length, None
        if length is not None and length <= len(arrived):
            body, arrived = arrived[:length], arrived[length:]
        self._cycle = cycle = RequestCycle(head, scope, self, self._output, default_lines, body)
        if self._is_stopping:
            cycle.keeps_alive = False
        if body is not None:
            self._enter(State.ANSWER)
        else:
            self._body = ChunkedBody(self._limits.max_header_bytes) if length is None else CountedBody(length)
            self._body_timeout_s = self._limits.body_timeout_s
            self._enter(State.BODY)
        task, tasks = self._loop.create_task(cycle.run(self._app)), self._server_state.tasks
        tasks.add(task)
        cycle.on_end = partial(tasks.discard, task)  # a callback of the task would take a turn of the loop
        return arrived

    def _read_body(self, data: bytes) -> bytes:
        cycle, framing = self._cycle, self._body
        assert cycle is not None
        assert framing is not None
        try:
            body, rest = framing.feed(data)
        except HttpError as error:
            self._fail_body(error)
            return b""
        if self._state is State.REST:
            self._discard(body)
        cycle.add_body(body)
        if rest is None:
            if cycle.unread_bytes > UNREAD_BYTES:
                self._flow.pause_reading()
                self._deadline.hold()
            return b""
        self._body = None
        cycle.end_body()
        if self._state is State.REST:
            self._next_request()
        else:
            self._enter(State.ANSWER)
        return rest

    def _keep_for_later(self, data: bytes) -> bytes:
        self._pending += data
        self._held.add(len(data))
        if len(self._pending) > PENDING_BYTES:
            self._flow.pause_reading()
        return b""

    def _discard(self, data: bytes) -> bytes:
        self._discarded_bytes += len(data)
        if self._discarded_bytes > LINGER_BYTES:
            self._transport.close()
        return b""

    _READERS: ClassVar[Mapping[State, Callable[["HttpConnection", bytes], bytes]]] = {
        State.IDLE: _read_head,
        State.HEAD: _read_head,
        State.EARLY_HEAD: _read_head,
        State.BODY: _read_body,
        State.REST: _read_body,
        State.ANSWER: _keep_for_later,
        State.TURN: _keep_for_later,
        State.FAILED: _discard,
        State.LINGER: _discard,
    }

    def _hold(self, count: int) -> None:
        if count != self._held.count:
            self._held.add(count - self._held.count)

    # Called by the request cycle.

    def allow_body_time(self, seconds: float) -> None:
        if self._state is State.BODY:
            self._body_timeout_s = seconds
            self._deadline.set(seconds)
            if self._flow.read_paused:
                self._deadline.hold()

    def resume_reading(self) -> None:
        is_wanted = self._half_closed is None and len(self._pending) <= PENDING_BYTES
        if self._flow.read_paused and is_wanted:
            self._flow.resume_reading()
            self._deadline.go_on()

    def response_done(self) -> None:
        self._server_state.total_requests += 1
        self._idle_since = self._loop.time()
        if self._half_closed is not None:
            self._half_closed.stop()
        if self._transport.is_closing():
            return
        cycle = self._cycle
        assert cycle is not None
        if self._pending or self._held.count:
            self._hold(len(self._pending))
        if not cycle.keeps_alive:
            self._close_gently()
        elif self._state is State.BODY:
            self._enter(State.REST)
            self.resume_reading()
        elif self._pending:
            self._enter(State.TURN)
            self._share.turns.wait(self._loop, self._take_turn)
        else:
            self._next_request()

    @property
    def is_at_end(self) -> bool:
        """True if the connection has reached its longest age, and no bytes of a next request wait."""
        return (
            self._loop.time() >= self._ends_at
            and self._state is State.ANSWER
            and not (self._pending or self._transport.is_closing() or has_unread_bytes(self._transport))
        )

    # From one state to the next, and the end.

    def _enter(self, state: State) -> None:
        self._state = state
        time = self._share.times.get(state)
        if time is None:
            self._deadline.clear()
        elif time.seconds is not None:
            self._deadline.set(time.seconds)

    def _on_deadline(self) -> None:
        """End the state whose time has passed."""
        if self._transport.is_closing():
            return
        match self._share.times[self._state].late:
            case Late.CLOSE:
                self._transport.close()
            case Late.REFUSE:
                seconds = self._limits.header_timeout_s
                self._refuse(RequestTimedOut(f"The headers did not arrive within {seconds:g} seconds."))
            case Late.FAIL:
                seconds = self._body_timeout_s
                self._fail_body(RequestTimedOut(f"The body did not arrive within {seconds:g} seconds."))
            case Late.LINGER:
                self._linger()

    def _take_turn(self) -> None:
        if not self._transport.is_closing():
            self._next_request()

    def _next_request(self) -> None:
        """Read the next request, of which a part may have arrived."""
        self._cycle = None
        self._discarded_bytes = 0
        if self._pending:
            self._enter(State.EARLY_HEAD)
            data = bytes(self._pending)
            self._pending.clear()
            self._hold(0)
            self._read(data)
        else:
            self._enter(State.IDLE)
        if self._half_closed is None:
            if self._flow.read_paused:
                self.resume_reading()
        elif self._state not in (State.ANSWER, State.FAILED) or not self._half_closed.start():
            self._transport.close()  # the request is cut and no more bytes will arrive, or the client is gone

    def _fail_body(self, error: HttpError) -> None:
        """Hand an error to the application, which is still to read the body or has answered already."""
        cycle = self._cycle
        assert cycle is not None
        self._body = None
        cycle.fail(error)
        if self._state is State.REST:
            self._linger()
        else:
            self._enter(State.FAILED)
            self._flow.pause_reading()  # until the response is written

    def _refuse(self, error: VecmillError) -> None:
        self._output.write(self._share.refusal(error, self._server_state.default_headers))
        self._linger()

    def _close_gently(self) -> None:
        """Close the connection, so that a client that is still sending can read the response."""
        is_old = self._loop.time() >= self._ends_at  # its client may be sending another request
        may_send = self._state is not State.ANSWER or bool(self._pending) or is_old
        if self._half_closed is not None or not may_send:
            self._transport.close()
        else:
            self._linger()

    def _linger(self) -> None:
        self._enter(State.LINGER)
        self._head = self._body = None
        self._pending.clear()
        self._hold(0)
        self._flow.resume_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    # Clients that closed their sending side.

    def _probe(self) -> None:
        if self._cycle is not None and self._cycle.may_probe:
            self._output.write(CONTINUE)
