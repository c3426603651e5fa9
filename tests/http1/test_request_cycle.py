"""One request and its response: what the application may send, and when it learns that the client is gone."""

import asyncio
import gc
import weakref
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl

from vecmill_server.http1.client_output import ClientOutput
from vecmill_server.http1.request_cycle import CYCLE, RequestCycle, write_lines
from vecmill_server.http1.request_head import HeadReader


class FreeTransport(asyncio.Transport):
    """A transport that takes everything."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


class OpenConnection:
    """A connection whose client goes on reading and writing."""

    def resume_reading(self) -> None:
        pass

    def allow_body_time(self, seconds: float) -> None:
        pass

    @property
    def is_at_end(self) -> bool:
        return False

    def response_done(self) -> None:
        pass


def make_cycle(body: bytes | None = None) -> tuple[RequestCycle, dict[str, Any], FreeTransport]:
    """A request with this body, its scope, and the transport of its response."""
    transport, scope = FreeTransport(), dict[str, Any]()
    head, _ = HeadReader(1024).feed(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert head is not None
    output = ClientOutput(transport, FlowControl(transport), asyncio.get_running_loop(), 1.0)
    return RequestCycle(head, scope, OpenConnection(), output, b"", body), scope, transport


async def respond(name: bytes, value: bytes) -> bytes:
    """The bytes of a response with this header."""
    cycle, _, transport = make_cycle()
    headers = [(b"content-length", b"0"), (name, value)]
    await cycle.send({"type": "http.response.start", "status": 200, "headers": headers})
    await cycle.send({"type": "http.response.body"})
    return transport.written


@pytest.mark.parametrize("value", [b"", b"a b\tc", b"\xe9", b"a: b"])
async def test_a_header_is_written_as_it_is(value: bytes) -> None:
    assert b"\r\nx-name: " + value + b"\r\n" in await respond(b"x-name", value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"x-name", b"a\r\nset-cookie: b"),
        (b"x-name", b"a\nb"),
        (b"x-name", b"a\rb"),
        (b"x-name", b"a\x00b"),
        (b"x-name\r\nset-cookie", b"b"),
        (b"x name", b"b"),
        (b"", b"b"),
    ],
)
async def test_a_header_with_another_line_in_it_is_never_written(name: bytes, value: bytes) -> None:
    with pytest.raises(RuntimeError, match="invalid character"):
        await respond(name, value)


async def test_the_application_learns_once_that_its_client_is_gone() -> None:
    cycle, scope, _ = make_cycle()
    left: list[str] = []
    scope[CYCLE].on_leave = lambda: left.append("left")
    assert left == []
    cycle.disconnect()
    assert cycle.is_disconnected
    assert left == ["left"]


async def test_nobody_is_told_after_the_response() -> None:
    cycle, scope, _ = make_cycle()
    left: list[str] = []
    scope[CYCLE].on_leave = lambda: left.append("left")
    cycle.answer(200, b"content-length: 0\r\n", b"")
    cycle.disconnect()
    assert left == []


def test_a_body_that_has_arrived_is_handed_over_without_an_event_loop() -> None:
    head, _ = HeadReader(1024).feed(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert head is not None
    output: Any = None
    cycle = RequestCycle(head, {}, OpenConnection(), output, b"", b"hello")
    with pytest.raises(StopIteration) as found:
        cycle.receive().send(None)
    assert found.value.value == {"type": "http.request", "body": b"hello", "more_body": False}
    assert not cycle.has_whole_body


async def test_a_body_that_has_arrived_is_taken_once_and_then_the_end_of_the_client_is_waited_for() -> None:
    cycle, _, _ = make_cycle(b"hello")
    assert cycle.has_whole_body
    assert cycle.take_body() == b"hello"
    waiting = asyncio.ensure_future(cycle.receive())
    await asyncio.sleep(0)
    assert not waiting.done()
    cycle.disconnect()
    assert await waiting == {"type": "http.disconnect"}


async def test_a_body_is_not_taken_from_a_client_that_left_or_that_waits_to_be_told_to_send_it() -> None:
    cycle, _, _ = make_cycle()
    assert not cycle.has_whole_body
    cycle, _, _ = make_cycle(b"hello")
    cycle.disconnect()
    assert not cycle.has_whole_body
    head, _ = HeadReader(1024).feed(b"PUT / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n\r\n")
    assert head is not None
    output: Any = None
    cycle = RequestCycle(head, {}, OpenConnection(), output, b"", b"hello")
    assert not cycle.has_whole_body


async def test_a_whole_answer_is_what_its_parts_would_be() -> None:
    headers = [(b"content-length", b"5"), (b"x-name", b"a")]
    in_parts, _, of_parts = make_cycle()
    await in_parts.send({"type": "http.response.start", "status": 200, "headers": headers})
    await in_parts.send({"type": "http.response.body", "body": b"hello"})
    at_once, _, of_whole = make_cycle()
    assert at_once.answer(200, write_lines(headers), b"hello") is None
    assert of_whole.written == of_parts.written
    assert at_once.is_response_complete


async def test_a_whole_answer_ends_when_the_client_has_taken_it() -> None:
    cycle, _, transport = make_cycle()
    cycle._output.flow.pause_writing()
    sending = cycle.answer(200, b"content-length: 0\r\n", b"")
    assert transport.written
    assert sending is not None
    waiting = asyncio.ensure_future(sending)
    await asyncio.sleep(0)
    assert not cycle.is_response_complete
    cycle._output.flow.resume_writing()
    await waiting
    assert cycle.is_response_complete


async def test_nothing_is_answered_to_a_client_that_left() -> None:
    cycle, _, transport = make_cycle()
    cycle.disconnect()
    assert cycle.answer(200, b"content-length: 0\r\n", b"") is None
    assert transport.written == b""


async def test_each_part_of_a_body_is_handed_over_once_and_an_end_is_waited_for() -> None:
    cycle, _, _ = make_cycle()
    cycle.add_body(b"a")
    cycle.add_body(b"b")
    assert (await cycle.receive())["body"] == b"ab"
    waiting = asyncio.ensure_future(cycle.receive())
    await asyncio.sleep(0)
    assert not waiting.done()
    cycle.end_body()
    assert await waiting == {"type": "http.request", "body": b"", "more_body": False}
    waiting = asyncio.ensure_future(cycle.receive())
    await asyncio.sleep(0)
    assert not waiting.done()
    cycle.disconnect()
    assert await waiting == {"type": "http.disconnect"}


async def test_an_ended_request_leaves_nothing_for_the_garbage_collector() -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    reader = HeadReader(1024)
    reader.feed(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
    cycle, scope, _ = make_cycle()
    gc.disable()
    try:
        await cycle.run(answer)
        ended_cycle, ended_reader = weakref.ref(cycle), weakref.ref(reader)
        del cycle, scope, reader
        assert ended_cycle() is None
        assert ended_reader() is None
    finally:
        gc.enable()
