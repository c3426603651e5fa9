"""A connection that has reached its longest age ends with its next response, and loses no request."""

import asyncio
import math
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

import pytest
from starlette.types import Receive, Scope, Send

from support.memory_transport import MemoryTransport, give, make_share, open_connection
from vecmill_server.base.settings import ServerSettings
from vecmill_server.http1.connection_limits import LEAST_AGE_SHARE, ConnectionShare
from vecmill_server.http1.protocol import HttpConnection

SEED = 26
AGE_S = 300.0
GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n"
CLOSE = b"\r\nconnection: close\r\n"


class LoopWithClock:
    """The running event loop with a clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self._loop = asyncio.get_running_loop()

    def time(self) -> float:
        return self.now

    def __getattr__(self, name: str) -> object:
        return getattr(self._loop, name)


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer at once if the request has no body, else after the body; in two parts if the path is /parts."""
    if scope["method"] == "POST" and scope["path"] != "/early":
        while (await receive()).get("more_body"):
            pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/parts":
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        for _ in range(5):
            await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b"b"})


@dataclass(slots=True)
class Opened:
    """A connection, its client's end, and its clock."""

    connection: HttpConnection
    transport: MemoryTransport
    client: socket.socket
    loop: LoopWithClock

    async def exchange(self, *pieces: bytes) -> bytes:
        """Send the pieces, and return what is written."""
        self.transport.written.clear()
        for piece in pieces:
            give(self.connection, piece)
            for _ in range(12):
                await asyncio.sleep(0)
        return bytes(self.transport.written)


def shared(max_connection_age_s: float = AGE_S) -> ConnectionShare:
    settings = replace(ServerSettings(), max_connection_age_s=max_connection_age_s)
    return replace(make_share(settings), dice=Random(SEED))


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def open_aged(sockets: tuple[socket.socket, socket.socket], share: ConnectionShare | None = None) -> Opened:
    loop = LoopWithClock()
    connection, transport, _ = open_connection(
        answer,
        share or shared(),
        kernel=sockets[0],
        loop=loop,  # type: ignore[arg-type]
    )
    return Opened(connection, transport, sockets[1], loop)


Sockets = tuple[socket.socket, socket.socket]


async def test_the_response_after_the_age_closes_the_connection_and_no_earlier_one(sockets: Sockets) -> None:
    opened = open_aged(sockets)
    for _ in range(10):
        assert CLOSE not in await opened.exchange(GET)
        opened.loop.now += 0.1 * LEAST_AGE_SHARE * AGE_S - 0.01
    opened.loop.now += (1 - LEAST_AGE_SHARE) * AGE_S + 1
    assert not opened.transport.closed  # an idle connection is left to the keep-alive time
    last = await opened.exchange(GET)
    assert last.count(b"HTTP/1.1 200 ") == 1
    assert CLOSE in last
    # The sending side only: a client that is sending its next request must not lose this response.
    assert opened.transport.half_closed
    assert not opened.transport.closed
    assert await opened.exchange(GET) == b""
    assert opened.connection.eof_received() in (False, None)


async def test_the_age_is_random_between_80_percent_and_all_of_the_longest() -> None:
    share = shared()
    ages = [share.draw_age_s() for _ in range(1_000)]
    assert all(LEAST_AGE_SHARE * AGE_S <= age <= AGE_S for age in ages)
    tenths = {math.floor((age / AGE_S - LEAST_AGE_SHARE) / (1 - LEAST_AGE_SHARE) * 10) for age in ages}
    assert tenths >= set(range(10))


async def test_without_a_longest_age_no_response_closes_the_connection(sockets: Sockets) -> None:
    opened = open_aged(sockets, shared(0.0))
    opened.loop.now += 1e9
    assert CLOSE not in await opened.exchange(GET)


async def test_pipelined_requests_are_all_answered_and_the_last_response_closes(sockets: Sockets) -> None:
    opened = open_aged(sockets)
    opened.loop.now += AGE_S
    first, second, third = (await opened.exchange(GET * 3)).split(b"HTTP/1.1 200 ")[1:]
    assert CLOSE not in first + second
    assert CLOSE in third
    assert opened.transport.half_closed


async def test_bytes_of_a_next_request_in_the_kernel_keep_the_connection(sockets: Sockets) -> None:
    opened = open_aged(sockets)
    opened.loop.now += AGE_S
    opened.client.sendall(GET[:1])
    assert CLOSE not in await opened.exchange(GET)
    sockets[0].recv(1)
    assert CLOSE in await opened.exchange(GET)


async def test_a_response_before_the_end_of_the_body_does_not_end_the_connection(sockets: Sockets) -> None:
    """The bytes after the body may be the next request."""
    opened = open_aged(sockets)
    opened.loop.now += AGE_S
    early = POST.replace(b"/", b"/early", 1) + b"\r\n"
    assert CLOSE not in await opened.exchange(early, b"hello")
    assert CLOSE in await opened.exchange(GET)


async def test_a_body_after_100_continue_is_read_before_the_connection_ends(sockets: Sockets) -> None:
    opened = open_aged(sockets)
    opened.loop.now += AGE_S
    found = await opened.exchange(POST + b"expect: 100-continue\r\n\r\n", b"hello")
    interim, final = found.split(b"HTTP/1.1 ")[1:]
    assert interim == b"100 Continue\r\n\r\n"
    assert CLOSE in final


async def test_a_response_in_parts_is_complete_though_another_request_arrives_after_its_head(
    sockets: Sockets,
) -> None:
    opened = open_aged(sockets)
    opened.loop.now += AGE_S
    give(opened.connection, GET.replace(b"/", b"/parts", 1))
    for _ in range(3):
        await asyncio.sleep(0)
    assert CLOSE in opened.transport.written  # so the client knows that its next request is not read
    found = await opened.exchange(GET)
    assert found == b"1\r\nb\r\n0\r\n\r\n"
    assert opened.transport.half_closed


async def test_http_1_0_has_one_request_for_each_connection_at_any_age(sockets: Sockets) -> None:
    opened = open_aged(sockets)
    opened.loop.now += AGE_S
    found = await opened.exchange(b"GET / HTTP/1.0\r\n\r\n")
    assert found.count(CLOSE) == 1
    assert opened.transport.closed or opened.transport.half_closed
