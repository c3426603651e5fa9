"""One request and its response: what the application may send, and when it learns that the client is gone."""

import asyncio
import gc
import weakref
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl

from vecmill_server.app.routes.endpoint import unless_client_leaves
from vecmill_server.base.errors import ClientGone
from vecmill_server.http1.client_output import ClientOutput
from vecmill_server.http1.request_cycle import RequestCycle
from vecmill_server.http1.request_head import HeadReader
from vecmill_server.service.bodies import watch_client


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

    @property
    def is_at_end(self) -> bool:
        return False

    def response_done(self) -> None:
        pass


def make_cycle() -> tuple[RequestCycle, dict[str, Any], FreeTransport]:
    """A request, its scope, and the transport of its response."""
    transport, scope = FreeTransport(), dict[str, Any]()
    head, _ = HeadReader(1024).feed(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert head is not None
    output = ClientOutput(transport, FlowControl(transport), asyncio.get_running_loop(), 1.0)
    return RequestCycle(head, scope, OpenConnection(), output, []), scope, transport


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


@pytest.mark.parametrize("has_cycle", [True, False])
async def test_the_application_learns_once_that_its_client_is_gone(has_cycle: bool) -> None:
    cycle, scope, _ = make_cycle()
    left: list[str] = []
    stop = watch_client(scope if has_cycle else {}, cycle.receive, lambda: left.append("left"))
    await asyncio.sleep(0)
    assert left == []
    cycle.disconnect()
    for _ in range(3):
        await asyncio.sleep(0)
    assert left == ["left"]
    stop()


@pytest.mark.parametrize("has_cycle", [True, False])
async def test_nobody_is_told_after_the_watch_has_ended(has_cycle: bool) -> None:
    cycle, scope, _ = make_cycle()
    left: list[str] = []
    watch_client(scope if has_cycle else {}, cycle.receive, lambda: left.append("left"))()
    cycle.disconnect()
    for _ in range(3):
        await asyncio.sleep(0)
    assert left == []


async def test_a_client_that_left_before_the_watch_is_noticed() -> None:
    cycle, scope, _ = make_cycle()
    cycle.disconnect()
    left: list[str] = []
    watch_client(scope, cycle.receive, lambda: left.append("left"))
    assert left == ["left"]


async def test_a_request_of_a_client_that_left_before_is_not_begun_and_its_task_goes_on() -> None:
    cycle, scope, _ = make_cycle()
    cycle.disconnect()
    begun: list[str] = []

    async def compute() -> None:
        begun.append("begun")

    with pytest.raises(ClientGone):
        await unless_client_leaves(compute(), scope, cycle.receive)
    await asyncio.sleep(0)
    assert begun == []


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
