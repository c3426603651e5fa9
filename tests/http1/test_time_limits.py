"""How long a connection may stay in each state, and what happens then. The test moves the time."""

import asyncio
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from starlette.types import Receive, Scope, Send

from support.memory_transport import LIMITS, ManualTime, MemoryTransport, give, make_share, open_connection
from vecmill_server.base.errors import HttpError, RequestTimedOut
from vecmill_server.http1.body_framing import CountedBody
from vecmill_server.http1.protocol import HttpConnection
from vecmill_server.http1.request_cycle import CYCLE, UNREAD_BYTES
from vecmill_server.http1.time_limits import LINGER_S, Deadline, State, state_times

HEAD_S, BODY_S, KEEP_ALIVE_S = LIMITS.header_timeout_s, LIMITS.body_timeout_s, LIMITS.keep_alive_s
GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
LONG_S = 1e6


@dataclass(slots=True)
class Steps:
    """An application that reads a body and answers when the test lets it, and notes what it got."""

    reads: asyncio.Event = field(default_factory=asyncio.Event)
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    bodies: list[bytes] = field(default_factory=list)
    errors: list[HttpError] = field(default_factory=list)
    body_time_s: float | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.body_time_s is not None:
            scope[CYCLE].allow_body_time(self.body_time_s)
        status = 200
        if scope["path"] == "/":
            await self.reads.wait()
            try:
                self.bodies.append(await read_all(receive))
            except HttpError as error:
                self.errors.append(error)
                status = 408
        await self.answers.wait()
        start = {"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]}
        await send(start)
        await send({"type": "http.response.body"})


async def read_all(receive: Receive) -> bytes:
    body, has_more = b"", True
    while has_more:
        message = await receive()
        body, has_more = body + message.get("body", b""), message.get("more_body", False)
    return body


@dataclass(slots=True)
class Opened:
    """A connection to `Steps`, and its time."""

    app: Steps
    time: ManualTime
    connection: HttpConnection
    transport: MemoryTransport

    async def give(self, data: bytes) -> None:
        give(self.connection, data)
        await settle()

    async def advance(self, seconds: float) -> None:
        self.time.advance(seconds)
        await settle()

    def state(self) -> State:
        return self.connection._state

    def is_paused(self) -> bool:
        return self.connection._flow.read_paused


async def settle() -> None:
    for _ in range(12):
        await asyncio.sleep(0)


@pytest.fixture
def kernel() -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours


def open_steps(kernel: socket.socket, *, reads: bool = True, answers: bool = True) -> Opened:
    """Open a connection to an application that reads at once and answers at once, or waits."""
    app, time = Steps(), ManualTime()
    if reads:
        app.reads.set()
    if answers:
        app.answers.set()
    connection, transport, _ = open_connection(app, make_share(), kernel=kernel, loop=time)
    return Opened(app, time, connection, transport)


def statuses(opened: Opened) -> list[bytes]:
    return [line[:3] for line in bytes(opened.transport.written).split(b"HTTP/1.1 ")[1:]]


def test_a_state_has_a_time_if_the_client_must_send_in_it() -> None:
    times = state_times(keep_alive_s=1.0, head_s=2.0, body_s=3.0)
    assert set(State) - set(times) == {State.ANSWER, State.TURN, State.FAILED}


# ---------------------------------------------------------------- heads


@pytest.mark.parametrize("begun", [b"", b"\r\n", GET[:-1]], ids=["nothing", "an empty line", "most of it"])
async def test_the_first_head_is_due_at_once_and_refused_when_it_is_late(
    kernel: socket.socket, begun: bytes
) -> None:
    opened = open_steps(kernel)
    await opened.advance(HEAD_S - 1)
    await opened.give(begun)
    await opened.advance(0.9)
    assert statuses(opened) == []
    await opened.advance(0.1)
    assert statuses(opened) == [b"408"]
    assert opened.state() is State.LINGER
    await opened.give(GET)
    await opened.advance(LINGER_S)
    assert statuses(opened) == [b"408"]
    assert opened.transport.closed


async def test_an_idle_connection_is_closed_without_a_response_and_empty_lines_do_not_count(
    kernel: socket.socket,
) -> None:
    opened = open_steps(kernel)
    await opened.give(GET)
    assert opened.state() is State.IDLE
    await opened.advance(KEEP_ALIVE_S - 1)
    await opened.give(b"\r\n")
    assert opened.state() is State.IDLE
    assert not opened.transport.closed
    await opened.advance(1)
    assert statuses(opened) == [b"200"]
    assert opened.transport.closed


async def test_a_head_after_an_idle_time_has_its_own_time(kernel: socket.socket) -> None:
    opened = open_steps(kernel)
    await opened.give(GET)
    await opened.advance(KEEP_ALIVE_S - 1)
    await opened.give(GET[:10])
    assert opened.state() is State.HEAD
    await opened.advance(HEAD_S - 1)
    await opened.give(GET[10:])
    assert statuses(opened) == [b"200", b"200"]
    await opened.give(GET[:10])
    await opened.advance(HEAD_S)
    assert statuses(opened) == [b"200", b"200", b"408"]


async def test_a_late_head_that_began_before_the_earlier_answer_gets_no_response(
    kernel: socket.socket,
) -> None:
    opened = open_steps(kernel, answers=False)
    await opened.give(GET + GET[:10])
    await opened.advance(LONG_S)
    assert opened.state() is State.ANSWER
    opened.app.answers.set()
    await settle()
    assert opened.state() is State.EARLY_HEAD
    await opened.advance(HEAD_S - 0.1)
    assert not opened.transport.half_closed
    await opened.advance(0.1)
    assert statuses(opened) == [b"200"]
    assert opened.transport.half_closed


async def test_an_empty_line_before_the_answer_leaves_the_connection_idle(kernel: socket.socket) -> None:
    opened = open_steps(kernel, answers=False)
    await opened.give(GET + b"\r\n")
    opened.app.answers.set()
    await settle()
    assert opened.state() is State.IDLE
    await opened.advance(KEEP_ALIVE_S - 0.1)
    assert not opened.transport.closed
    await opened.advance(0.1)
    assert opened.transport.closed


# ---------------------------------------------------------------- bodies


@pytest.mark.promise("bounded-input")
async def test_the_application_gets_an_error_instead_of_a_late_body_and_its_answer_ends_the_connection(
    kernel: socket.socket,
) -> None:
    opened = open_steps(kernel, answers=False)
    await opened.give(POST % 5 + b"hell")
    assert opened.state() is State.BODY
    await opened.advance(BODY_S - 0.1)
    assert opened.app.errors == []
    await opened.advance(0.1)
    assert opened.state() is State.FAILED
    assert [str(error) for error in opened.app.errors] == ["The body did not arrive within 30 seconds."]
    assert isinstance(opened.app.errors[0], RequestTimedOut)
    await opened.advance(LONG_S)
    await opened.give(b"o" + GET)
    opened.app.answers.set()
    await settle()
    assert statuses(opened) == [b"408"]
    assert b"\r\nconnection: close\r\n" in opened.transport.written
    assert opened.state() is State.LINGER


@pytest.mark.parametrize("body_time_s", [BODY_S / 10, BODY_S * 10])
async def test_the_application_sets_the_time_of_a_body(kernel: socket.socket, body_time_s: float) -> None:
    opened = open_steps(kernel)
    opened.app.body_time_s = body_time_s
    await opened.give(POST % 5 + b"hell")
    await opened.advance(body_time_s - 0.1)
    assert opened.app.errors == []
    await opened.advance(0.1)
    assert [str(error) for error in opened.app.errors] == [
        f"The body did not arrive within {body_time_s:g} seconds."
    ]


async def test_the_time_of_a_body_stands_still_while_the_server_does_not_read(kernel: socket.socket) -> None:
    opened = open_steps(kernel, reads=False)
    part = b"x" * (UNREAD_BYTES + 1)
    await opened.give(POST % (2 * len(part)))
    await opened.advance(BODY_S - 1)
    await opened.give(part)
    assert opened.is_paused()
    await opened.advance(LONG_S)
    opened.app.reads.set()
    await settle()
    assert not opened.is_paused()
    await opened.advance(0.9)
    assert opened.app.errors == []
    await opened.advance(0.1)
    assert len(opened.app.errors) == 1


async def test_a_body_that_arrives_in_time_has_no_time_afterwards(kernel: socket.socket) -> None:
    opened = open_steps(kernel, answers=False)
    await opened.give(POST % 5 + b"hell")
    await opened.advance(BODY_S - 1)
    await opened.give(b"o")
    assert opened.state() is State.ANSWER
    await opened.advance(LONG_S)
    opened.app.answers.set()
    await settle()
    assert opened.app.bodies == [b"hello"]
    assert statuses(opened) == [b"200"]


async def test_the_rest_of_a_body_after_the_answer_has_the_time_that_is_left(kernel: socket.socket) -> None:
    opened = open_steps(kernel)
    await opened.advance(HEAD_S / 2)
    early = (POST % 5).replace(b"/", b"/early", 1)
    await opened.give(early)
    assert statuses(opened) == [b"200"]
    assert opened.state() is State.REST
    await opened.advance(BODY_S - 1)
    await opened.give(b"hell")
    assert opened.state() is State.REST
    await opened.give(b"o" + GET)  # the connection goes on
    assert statuses(opened) == [b"200", b"200"]
    await opened.give(early)
    await opened.advance(BODY_S)
    assert statuses(opened) == [b"200", b"200", b"200"]
    assert opened.transport.closed


@pytest.mark.parametrize("more", [b"", b"GET"], ids=["alone", "with a part of the next request"])
async def test_a_body_that_arrived_with_its_head_needs_no_framing_and_no_timer(
    kernel: socket.socket, more: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_steps(kernel)
    await opened.give(GET)
    monkeypatch.delattr(CountedBody, "feed")
    timers = list(opened.time.timers)
    opened.app.answers.clear()
    await opened.give(POST % 5 + b"hello" + more)
    assert opened.state() is State.ANSWER
    assert opened.app.bodies == [b"", b"hello"]
    assert opened.time.timers == timers


# ---------------------------------------------------------------- clients that closed their sending side


async def test_a_half_closed_client_gets_an_interim_response_if_the_answer_takes_long(
    kernel: socket.socket,
) -> None:
    opened = open_steps(kernel, answers=False)
    await opened.give(GET)
    assert opened.connection.eof_received()
    await opened.advance(0.4)
    assert opened.transport.written == b""
    await opened.advance(60)
    assert statuses(opened) == [b"100"]
    opened.app.answers.set()
    await settle()
    assert statuses(opened) == [b"100", b"200"]
    assert opened.transport.closed


@pytest.mark.parametrize("begun", [b"", GET[:10], POST % 5 + b"hell"], ids=["idle", "head", "body"])
async def test_a_client_that_ends_before_its_request_does_is_let_go(
    kernel: socket.socket, begun: bytes
) -> None:
    opened = open_steps(kernel)
    await opened.give(begun)
    assert not opened.connection.eof_received()


# ---------------------------------------------------------------- deadlines


async def test_a_deadline_that_is_moved_fires_once_at_its_last_time() -> None:
    time, fired = ManualTime(), list[float]()
    deadline = Deadline(time, lambda: fired.append(time.now))  # type: ignore[arg-type]
    began = time.now
    deadline.set(10.0)
    time.advance(5.0)
    deadline.set(10.0)
    time.advance(5.0)
    deadline.set(1.0)
    time.advance(LONG_S)
    assert fired == [began + 11.0]
    deadline.set(10.0)
    deadline.clear()
    time.advance(LONG_S)
    deadline.set(10.0)
    deadline.close()
    assert [timer for timer in time.timers if not timer.cancelled()] == []
    assert len(fired) == 1


async def test_a_deadline_that_is_held_keeps_the_time_that_is_left() -> None:
    time, fired = ManualTime(), list[float]()
    deadline = Deadline(time, lambda: fired.append(time.now))  # type: ignore[arg-type]
    deadline.hold()
    deadline.go_on()
    time.advance(LONG_S)
    deadline.set(10.0)
    time.advance(4.0)
    deadline.hold()
    deadline.hold()
    time.advance(LONG_S)
    deadline.go_on()
    deadline.go_on()
    time.advance(5.0)
    assert fired == []
    time.advance(1.0)
    assert fired == [time.now]
    deadline.set(10.0)
    deadline.hold()
    deadline.clear()
    deadline.go_on()
    time.advance(LONG_S)
    assert len(fired) == 1
