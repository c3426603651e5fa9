"""The limits on request bodies: size, time and encoding; reading within them; clients that leave."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from starlette.types import Message, Receive, Scope

from vecmill_server.base.byte_budget import HeldBytes
from vecmill_server.base.errors import (
    BodyTooLarge,
    ClientGone,
    HttpError,
    RequestTimedOut,
    UnsupportedEncoding,
)
from vecmill_server.base.headers import HEADER_INDEX, HeaderIndex, index_headers
from vecmill_server.base.settings import ServerSettings
from vecmill_server.http1.request_cycle import CYCLE, RequestCycle

# After a body is refused, the rest of the body is read and discarded, because a client that is still
# sending does not read the response. These two constants bound the discarding.
DISCARD_FACTOR = 8
DISCARD_S = 10.0


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """The limits on a request body. `advice` ends the error message for a body that is too large."""

    max_bytes: int
    timeout_s: float
    advice: str = "Send fewer texts at a time."

    @classmethod
    def of(cls, settings: ServerSettings) -> "BodyLimits":
        """Return the limits in `settings`."""
        return cls(settings.max_body_bytes, settings.body_timeout_s)


def take_body(scope: Scope, limits: BodyLimits, held: HeldBytes) -> bytes | bytearray | None:
    """Return the body if all of it arrived with its head, and count its bytes in `held`; otherwise `None`.

    Only a connection of our own tells. Raises the errors of `read_body` before reading.
    """
    cycle: RequestCycle | None = scope.get(CYCLE)
    if cycle is None or not cycle.has_whole_body:
        return None
    held.reserve(_check_headers(scope, limits))
    return cycle.take_body()


async def read_body(scope: Scope, receive: Receive, limits: BodyLimits, held: HeldBytes) -> bytes | bytearray:
    """Read the whole body, and count its bytes in `held`.

    Raises `UnsupportedEncoding`, `BodyTooLarge` or `BuffersFull` before reading if the headers violate a
    limit or the body does not fit, and `BodyTooLarge`, `BuffersFull`, `MalformedRequest`, `RequestTimedOut`
    or `ClientGone` while reading.
    """
    held.reserve(_check_headers(scope, limits))
    receive = limit_body_time(scope, receive, limits.timeout_s)
    reserved = held.count
    body = bytearray()  # grows in place, so that a large body is never in memory twice
    while True:
        chunk, has_more = await _receive_chunk(receive)
        if not body and not has_more:
            return chunk
        body += chunk
        if len(body) > limits.max_bytes:
            raise _too_large(limits)
        if len(body) > reserved:  # the body is chunked
            held.reserve(len(chunk))
        if not has_more:
            return body


async def stream_body(scope: Scope, receive: Receive, limits: BodyLimits) -> AsyncIterator[bytes]:
    """Read the body in chunks. Raises the same errors as `read_body`.

    The time limit does not count the caller's work between chunks, for which the client has to wait.
    """
    _check_headers(scope, limits)
    receive = limit_body_time(scope, receive, limits.timeout_s)
    left_bytes = limits.max_bytes
    has_more = True
    while has_more:
        chunk, has_more = await _receive_chunk(receive)
        left_bytes -= len(chunk)
        if left_bytes < 0:
            raise _too_large(limits)
        yield chunk


async def discard_body(receive: Receive, limits: BodyLimits) -> None:
    """Discard the rest of the body, up to `DISCARD_FACTOR` times the size limit, for `DISCARD_S` seconds."""
    left = DISCARD_FACTOR * limits.max_bytes
    try:
        async with asyncio.timeout(DISCARD_S):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
    except (TimeoutError, HttpError):  # the rest is late or not valid, but the response has been sent
        return


def limit_body_time(scope: Scope, receive: Receive, seconds: float) -> Receive:
    """Return `receive`, or one like it, that raises `RequestTimedOut` if the client takes too long to send.

    The connection measures the time, and starts it anew. Where the application runs under the server of
    another project, the time in which somebody waits for `receive` is measured here.
    """
    cycle: RequestCycle | None = scope.get(CYCLE)
    if cycle is not None:
        cycle.allow_body_time(seconds)
        return receive
    clock = asyncio.get_running_loop().time
    left_s = seconds

    async def receive_in_time() -> Message:
        nonlocal left_s
        began = clock()
        try:
            async with asyncio.timeout(left_s):
                return await receive()
        except TimeoutError:
            raise RequestTimedOut(f"The body did not arrive within {seconds:g} seconds.") from None
        finally:
            left_s -= clock() - began

    return receive_in_time


def _check_headers(scope: Scope, limits: BodyLimits) -> int:
    """Return the length of the body, 0 if it is chunked. Raises an error if a header violates a limit."""
    index: HeaderIndex = scope.get(HEADER_INDEX) or index_headers(scope)
    if b"content-encoding" in index:
        _check_encodings(value for name, value in scope["headers"] if name == b"content-encoding")
    length = int(index.get(b"content-length", 0))  # the HTTP parser accepts only digits
    if length > limits.max_bytes:
        raise _too_large(limits)
    return length


def _check_encodings(values: Iterable[bytes]) -> None:
    if any(value.strip().lower() not in (b"", b"identity") for value in values):
        raise UnsupportedEncoding("Compressed bodies are not accepted. Send uncompressed JSON.")


async def _receive_chunk(receive: Receive) -> tuple[bytes, bool]:
    """Return the next part of the body, and whether there are more. Raises `ClientGone`."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGone
    return message.get("body", b""), message.get("more_body", False)


def _too_large(limits: BodyLimits) -> BodyTooLarge:
    return BodyTooLarge(f"The body is larger than {limits.max_bytes} bytes. {limits.advice}")


class UnlessClientLeaves:
    """A context in which to wait for an answer. If the client disconnects, the wait ends with `ClientGone`.

    The body must have been read. `http1.client_output` describes clients that close only their sending side.
    """

    __slots__ = ("_cycle", "_has_left", "_receive", "_task", "_watch")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._cycle: RequestCycle | None = scope.get(CYCLE)
        self._receive = receive
        self._has_left = False

    def __enter__(self) -> None:
        """Watch the client of the current task. Raises `ClientGone` if it has left already."""
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        if self._cycle is None:  # under the server of another project
            self._watch = asyncio.ensure_future(self._wait())
            return
        if self._cycle.is_disconnected:
            raise ClientGone
        self._cycle.on_leave = self._leave

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if self._cycle is None:
            self._watch.cancel()
        else:
            self._cycle.on_leave = None
        # If the task was also cancelled from outside, the cancellation continues.
        if self._has_left and isinstance(error, asyncio.CancelledError) and self._task.uncancel() == 0:
            raise ClientGone from None

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        self._has_left = True
        self._task.cancel()
