"""Bodies are read within their limits, under our own connections and those of other servers."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope

from vecmill_server.base.byte_budget import ByteBudget
from vecmill_server.base.errors import BodyTooLarge, ClientGone, RequestTimedOut, UnsupportedEncoding
from vecmill_server.base.headers import HEADER_INDEX, header, index_headers
from vecmill_server.http1 import request_cycle
from vecmill_server.http1.request_cycle import CYCLE, RequestCycle
from vecmill_server.http1.request_head import RequestHead
from vecmill_server.service.bodies import BodyLimits, UnlessClientLeaves, read_body, stream_body, take_body

LIMITS = BodyLimits(100, 20.0)


def make_scope(headers: Iterable[tuple[bytes, bytes]] = ()) -> dict[str, Any]:
    """The scope that the server of another project makes."""
    return {"type": "http", "headers": list(headers)}


def receive_of(messages: Sequence[Message]) -> Receive:
    """A `receive` that hands over the messages, and then waits for ever."""
    left = list(messages)

    async def receive() -> Message:
        if not left:
            await asyncio.get_running_loop().create_future()
        return left.pop(0)

    return receive


def part(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


async def read(scope: Scope, *messages: Message, limits: BodyLimits = LIMITS) -> bytes:
    """The whole body, read in one of the two ways, which must give the same."""
    with ByteBudget(1 << 20).hold() as held:
        whole = bytes(await read_body(scope, receive_of(messages), limits, held))
    assert whole == b"".join([chunk async for chunk in stream_body(scope, receive_of(messages), limits)])
    return whole


async def test_the_parts_of_a_body_are_joined() -> None:
    assert await read(make_scope(), part(b"hello")) == b"hello"
    assert await read(make_scope(), part(b"hel", more=True), part(b"l", more=True), part(b"o")) == b"hello"


async def test_a_client_that_leaves_before_the_end_is_gone() -> None:
    with pytest.raises(ClientGone):
        await read(make_scope(), part(b"hel", more=True), {"type": "http.disconnect"})


@pytest.mark.parametrize(
    ("headers", "messages"),
    [
        ([(b"content-length", b"101")], []),
        ([(b"content-length", b" 101 ")], []),
        ([], [part(b"x" * 60, more=True), part(b"x" * 60)]),
    ],
)
async def test_a_body_over_the_limit_is_refused(
    headers: list[tuple[bytes, bytes]], messages: list[Message]
) -> None:
    with pytest.raises(BodyTooLarge):
        await read(make_scope(headers), *messages)


async def test_any_of_several_encodings_is_refused() -> None:
    encoding = b"content-encoding"
    assert await read(make_scope([(encoding, b" Identity"), (encoding, b"")]), part(b"hello")) == b"hello"
    with pytest.raises(UnsupportedEncoding):
        await read(make_scope([(encoding, b"identity"), (encoding, b"gzip")]), part(b"hello"))


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_the_server_of_another_project_leaves_the_time_to_the_application(is_streamed: bool) -> None:
    limits, receive = BodyLimits(100, 0.0), receive_of([])
    with ByteBudget(1 << 20).hold() as held:
        reading = (
            anext(stream_body(make_scope(), receive, limits))
            if is_streamed
            else read_body(make_scope(), receive, limits, held)
        )
        with pytest.raises(RequestTimedOut, match="within 0 seconds"):
            await reading


async def test_a_connection_of_our_own_measures_the_time_and_no_timer_is_started() -> None:
    cycle = WatchedCycle()
    scope = {**make_scope(), CYCLE: cycle}
    with ByteBudget(1 << 20).hold() as held:
        reading = read_body(scope, receive_of([part(b"hello")]), LIMITS, held)
        with pytest.raises(StopIteration) as found:  # at once, without the event loop
            reading.send(None)
    assert found.value.value == b"hello"
    assert cycle.allowed_s == [LIMITS.timeout_s]


def test_a_body_that_is_here_is_taken_within_the_limits() -> None:
    def take(body: bytes, *headers: tuple[bytes, bytes]) -> bytes | bytearray | None:
        output: Any = None
        head = RequestHead(
            "POST", b"/", b"", "1.1", [], {}, len(body), keeps_alive=True, expects_continue=False
        )
        scope = make_scope([(b"content-length", b"%d" % len(body)), *headers])
        RequestCycle(head, scope, output, output, b"", body)
        with ByteBudget(1 << 20).hold() as held:
            taken = take_body(scope, LIMITS, held)
            assert held.count == len(body)
        return taken

    assert take(b"hello") == b"hello"
    with pytest.raises(BodyTooLarge):
        take(b"x" * 101)
    with pytest.raises(UnsupportedEncoding):
        take(b"hello", (b"content-encoding", b"gzip"))


def test_a_body_that_is_not_here_is_to_be_read() -> None:
    with ByteBudget(1 << 20).hold() as held:
        assert take_body(make_scope(), LIMITS, held) is None
        assert take_body({**make_scope(), CYCLE: WatchedCycle()}, LIMITS, held) is None


# Either kind of server tells, in its own way, that the client has left.


@dataclass(slots=True)
class WatchedCycle:
    """The request of a connection of our own, as far as its body and its client are concerned."""

    has_whole_body: bool = False
    is_disconnected: bool = False
    allowed_s: list[float] = field(default_factory=list)
    on_leave: Callable[[], None] | None = None

    def allow_body_time(self, seconds: float) -> None:
        self.allowed_s.append(seconds)


def watched(*, is_ours: bool) -> tuple[Scope, Receive, Callable[[], None]]:
    """A scope, its `receive`, and a function by which the client leaves."""
    cycle = WatchedCycle()
    left = asyncio.Event()

    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    def leave() -> None:
        left.set()
        if cycle.on_leave is not None:
            cycle.on_leave()

    return {CYCLE: cycle} if is_ours else {}, receive, leave


@pytest.mark.parametrize("is_ours", [True, False])
async def test_the_wait_for_an_answer_ends_when_the_client_leaves_and_its_task_goes_on(is_ours: bool) -> None:
    scope, receive, leave = watched(is_ours=is_ours)
    asyncio.get_running_loop().call_later(0.01, leave)
    with pytest.raises(ClientGone), UnlessClientLeaves(scope, receive):
        await asyncio.get_running_loop().create_future()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)


@pytest.mark.parametrize("is_ours", [True, False])
async def test_a_cancellation_from_outside_continues_though_the_client_leaves(is_ours: bool) -> None:
    scope, receive, leave = watched(is_ours=is_ours)

    async def wait() -> None:
        with UnlessClientLeaves(scope, receive):
            await asyncio.get_running_loop().create_future()

    task = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    task.cancel()
    leave()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("is_ours", [True, False])
async def test_nobody_is_told_after_the_watch_has_ended(is_ours: bool) -> None:
    scope, receive, leave = watched(is_ours=is_ours)
    with UnlessClientLeaves(scope, receive):
        await asyncio.sleep(0)
    leave()
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_request_of_a_client_that_left_before_is_not_begun_and_its_task_goes_on() -> None:
    begun: list[str] = []
    watch = UnlessClientLeaves({CYCLE: WatchedCycle(is_disconnected=True)}, receive_of([]))
    with pytest.raises(ClientGone), watch:
        begun.append("begun")
    await asyncio.sleep(0)
    assert begun == []


# Headers are indexed once for a request.


def test_a_connection_hands_over_the_index_under_the_key_that_the_application_reads() -> None:
    assert request_cycle.HEADER_INDEX == HEADER_INDEX


def test_the_first_header_of_a_name_counts_and_is_stripped() -> None:
    scope = make_scope([(b"x-a", b" b "), (b"x-c", b""), (b"x-a", b"d")])
    assert header(scope, b"x-a") == b"b"
    assert header(scope, b"x-c") == b""
    assert header(scope, b"x-e") is None
    assert index_headers(scope) is index_headers(scope)


def test_the_list_is_not_read_where_a_connection_hands_over_an_index() -> None:
    scope = {**make_scope([(b"x-a", b"b")]), HEADER_INDEX: {b"x-a": b"c"}}
    assert header(scope, b"x-a") == b"c"
