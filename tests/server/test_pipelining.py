"""Requests that arrive before the earlier one is answered take turns with those of other connections."""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Receive, Scope, Send

from support.memory_transport import MemoryTransport, give, make_share, open_connection
from vecmill_server.base.byte_budget import ByteBudget
from vecmill_server.http1.connection_limits import ConnectionShare
from vecmill_server.http1.pipelining import REQUESTS_PER_TURN, PipelineTurns
from vecmill_server.http1.protocol import HttpConnection

CONNECTIONS, REQUESTS = 100, 50
FLOOD = b"GET /flood HTTP/1.1\r\nhost: x\r\n\r\n"
PROBE = b"GET /probe HTTP/1.1\r\nhost: x\r\n\r\n"
ALL_TURNS = CONNECTIONS * REQUESTS // REQUESTS_PER_TURN + 100
# The task of a request begins in the turn after the one that read it.
TURNS_OF_PROBE = 2


class CountedLoop:
    """The callbacks of an event loop, run turn by turn."""

    def __init__(self) -> None:
        self.ready: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        self.ready.append((callback, arguments))

    def run_turn(self) -> None:
        ready, self.ready = self.ready, []
        for callback, arguments in ready:
            callback(*arguments)


@dataclass(slots=True)
class Application:
    """An application that answers at once, and notes the paths."""

    paths: list[str] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.paths.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})


async def flood(app: Application, share: ConnectionShare) -> list[tuple[HttpConnection, MemoryTransport]]:
    """Open the connections, and send all requests of each at once."""
    opened = []
    for _ in range(CONNECTIONS):
        connection, transport, _ = open_connection(app, share)
        give(connection, FLOOD * REQUESTS)
        opened.append((connection, transport))
    return opened


def test_a_turn_of_the_loop_begins_a_few_requests_of_the_line() -> None:
    turns, loop, begun = PipelineTurns(), CountedLoop(), list[int]()
    for number in range(3 * REQUESTS_PER_TURN - 1):
        turns.wait(loop, lambda number=number: begun.append(number))  # type: ignore[arg-type,misc]
    counts = []
    while loop.ready:
        loop.run_turn()
        counts.append(len(begun))
    assert counts == [0, REQUESTS_PER_TURN, 2 * REQUESTS_PER_TURN, 3 * REQUESTS_PER_TURN - 1]
    assert begun == sorted(begun)
    turns.wait(loop, lambda: begun.append(-1))  # type: ignore[arg-type]
    loop.run_turn()
    loop.run_turn()
    assert begun[-1] == -1


def test_an_error_of_one_connection_does_not_end_the_line() -> None:
    turns, loop, begun = PipelineTurns(), CountedLoop(), list[int]()
    turns.wait(loop, lambda: begun.append(1 // 0))  # type: ignore[arg-type]
    for number in range(2 * REQUESTS_PER_TURN):
        turns.wait(loop, lambda number=number: begun.append(number))  # type: ignore[arg-type,misc]
    while loop.ready:
        ready, loop.ready = loop.ready, []
        for callback, arguments in ready:
            try:
                callback(*arguments)
            except ZeroDivisionError:  # an event loop logs it
                continue
    assert begun == list(range(2 * REQUESTS_PER_TURN))


async def test_a_request_waits_for_a_few_requests_of_a_hundred_connections_that_pipeline() -> None:
    app, share = Application(), make_share()
    await flood(app, share)
    for _ in range(5):  # the first request of each connection begins when it is read
        await asyncio.sleep(0)
    for _ in range(20):
        connection, transport, _ = open_connection(app, share)
        before = len(app.paths)
        give(connection, PROBE)
        for _ in range(TURNS_OF_PROBE):
            await asyncio.sleep(0)
        assert transport.written.startswith(b"HTTP/1.1 200 ")
        assert app.paths.index("/probe") - before <= TURNS_OF_PROBE * REQUESTS_PER_TURN
        app.paths.remove("/probe")
        assert len(app.paths) > before, "the line stands still"
    for _ in range(ALL_TURNS):
        await asyncio.sleep(0)
    assert app.paths == ["/flood"] * CONNECTIONS * REQUESTS


async def test_connections_of_the_line_take_turns_with_each_other() -> None:
    app, share = Application(), make_share()
    opened = await flood(app, share)
    for _ in range(CONNECTIONS * REQUESTS // REQUESTS_PER_TURN // 2):
        await asyncio.sleep(0)
    counts = [transport.written.count(b"HTTP/1.1 200 ") for _, transport in opened]
    assert max(counts) - min(counts) <= 1
    assert max(counts) < REQUESTS
    for _ in range(ALL_TURNS):
        await asyncio.sleep(0)
    assert app.paths == ["/flood"] * CONNECTIONS * REQUESTS


async def test_a_client_that_closes_its_sending_side_in_the_line_gets_all_responses() -> None:
    app, share = Application(), make_share()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection, transport, _ = open_connection(app, share, kernel=ours)
        give(connection, FLOOD * 5)
        for _ in range(2):
            await asyncio.sleep(0)
        assert transport.written.count(b"HTTP/1.1 200 ") == 1
        assert connection.eof_received()
        for _ in range(30):
            await asyncio.sleep(0)
        assert transport.written.count(b"HTTP/1.1 200 ") == 5
        assert transport.closed


async def test_a_stop_answers_one_more_request_of_a_connection_in_the_line_and_says_so() -> None:
    app, share = Application(), make_share()
    connection, transport, _ = open_connection(app, share)
    give(connection, FLOOD * 3)
    for _ in range(2):
        await asyncio.sleep(0)
    assert transport.written.count(b"HTTP/1.1 200 ") == 1
    connection.shutdown()
    assert not transport.closed
    for _ in range(10):
        await asyncio.sleep(0)
    first, _, second = (
        bytes(transport.written).partition(b"HTTP/1.1 200 OK\r\n")[2].partition(b"HTTP/1.1 200 OK\r\n")
    )
    assert b"connection: close" not in first
    assert b"connection: close" in second
    assert transport.half_closed


async def test_a_connection_that_is_lost_in_the_line_begins_nothing() -> None:
    app, share = Application(), make_share()
    connection, transport, _ = open_connection(app, share)
    give(connection, FLOOD * 3)
    for _ in range(2):
        await asyncio.sleep(0)
    transport.close()
    connection.connection_lost(None)
    for _ in range(10):
        await asyncio.sleep(0)
    assert app.paths == ["/flood"]
    assert isinstance(share.budget, ByteBudget)
    assert share.budget.held == 0
