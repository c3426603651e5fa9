"""The HTTP protocol of a connection over a transport in memory, which takes any bytes in any portions."""

import asyncio
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import httptools
from uvicorn.server import ServerState

from support.http_server import DIM, QUIET, build_service
from support.memory_transport import MemoryTransport, give
from vecmill.directory_layouts import describe_model
from vecmill.engines.fake import FakeEngine
from vecmill.models import locate_model
from vecmill_server.app import describe_routes
from vecmill_server.base.settings import ServerSettings
from vecmill_server.process.runner import uvicorn_config

MOST_TURNS = 200
# Every status that a route may answer with, and those of the connection. A server whose model is not loaded
# answers 503 to work; any other 5xx is a defect.
DESCRIBED = {
    int(code)
    for methods in describe_routes(ServerSettings())["paths"].values()
    for operation in methods.values()
    for code in operation["responses"]
}
STATUSES = frozenset(
    {code for code in DESCRIBED if code < 500} | {307, 401, 403, 404, 405, 408, 411, 413, 431, 503}
)


class _WholeRequests:
    def __init__(self) -> None:
        self.count = 0

    def on_message_complete(self) -> None:
        self.count += 1


def has_whole_request(data: bytes) -> bool:
    """Return True if the first request in `data` is whole for a parser that reads bodies too.

    Such a request must get a response. An offered upgrade ends that parser before the body.
    """
    requests = _WholeRequests()
    try:
        httptools.HttpRequestParser(requests).feed_data(data)
    except httptools.HttpParserUpgrade:
        return False
    except httptools.HttpParserError:  # in what follows, if a request was whole
        pass
    return requests.count > 0


class Responses:
    """The responses in a stream of bytes, parsed to its end. An unknown status or body is an error."""

    def __init__(self, data: bytes) -> None:
        self.statuses: list[int] = []
        self._body = b""
        self._parser = httptools.HttpResponseParser(self)
        self._parser.feed_data(data)
        assert self._body == b"", "a response without its end"

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        self.statuses.append(status)
        assert status in STATUSES, status
        if status >= 400 and self._body:
            assert "error" in json.loads(self._body), self._body
        self._body = b""


@cache
def _prepared() -> tuple[Any, asyncio.AbstractEventLoop]:
    engine = FakeEngine(dim=DIM)
    config = uvicorn_config(build_service(QUIET, [(describe_model(locate_model()), engine)]))
    config.load()
    return config, asyncio.new_event_loop()


def feed_connection(data: bytes) -> None:
    """Give a connection the bytes after the first one, in portions: of one byte if the first one is odd."""
    config, loop = _prepared()
    portion = 1 if data[:1] and data[0] % 2 else max(1, len(data))
    errors: list[Mapping[str, Any]] = []
    loop.set_exception_handler(lambda _loop, context: errors.append(context))
    loop.run_until_complete(_feed(config, loop, data[1:], portion))
    assert not errors, errors


async def _feed(config: Any, loop: asyncio.AbstractEventLoop, data: bytes, portion: int) -> None:
    transport = MemoryTransport()
    state = ServerState()
    protocol = config.http_protocol_class(config=config, server_state=state, app_state={}, _loop=loop)
    protocol.connection_made(transport)
    for start in range(0, len(data), portion):
        if transport.closed:
            break
        give(protocol, data[start : start + portion])
        await asyncio.sleep(0)
    for _ in range(MOST_TURNS):
        if not state.tasks:
            break
        await asyncio.sleep(0)
    # The response to HEAD has a length and no body, also where the request follows another one.
    if b"HEAD " not in data.upper():
        responses = Responses(bytes(transport.written))
        assert responses.statuses or not has_whole_request(data), "a whole request without a response"
    assert not transport.is_misused, "written after the end of the sending side"
    if not transport.closed:  # no event loop reads on after that
        protocol.eof_received()
    transport.closed = True
    protocol.connection_lost(None)
    for _ in range(MOST_TURNS):
        if not state.tasks:
            return
        await asyncio.sleep(0)
    raise AssertionError("a request goes on without its connection")
