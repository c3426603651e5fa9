"""The limits on request bodies: size, time and encoding, and the reading of a body within them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass

from starlette.types import Receive, Scope

from vecmill_server.base.byte_budget import HeldBytes
from vecmill_server.base.errors import (
    BodyTooLarge,
    ClientGone,
    HttpError,
    RequestTimedOut,
    UnsupportedEncoding,
)
from vecmill_server.base.settings import ServerSettings
from vecmill_server.http1.scope_keys import BODY_TIME, CLIENT_WATCH

Headers = Iterable[tuple[bytes, bytes]]

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


async def read_body(
    headers: Headers, receive: Receive, limits: BodyLimits, held: HeldBytes
) -> bytes | bytearray:
    """Read the whole body, and count its bytes in `held`.

    Raises `UnsupportedEncoding`, `BodyTooLarge` or `BuffersFull` before reading if the headers violate a
    limit or the body does not fit, and `BodyTooLarge`, `BuffersFull`, `MalformedRequest`, `RequestTimedOut`
    or `ClientGone` while reading.
    """
    held.reserve(_check_headers(headers, limits))
    try:
        async with asyncio.timeout(limits.timeout_s):
            return await _collect(receive, limits, held)
    except TimeoutError:
        raise RequestTimedOut(f"The body did not arrive within {limits.timeout_s:g} seconds.") from None


async def stream_body(headers: Headers, receive: Receive, limits: BodyLimits) -> AsyncIterator[bytes]:
    """Read the body in chunks. Raises the same errors as `read_body`.

    The time limit counts only the time spent waiting for the client, not the caller's work between chunks.
    """
    _check_headers(headers, limits)
    left_s, left_bytes = limits.timeout_s, limits.max_bytes
    clock = asyncio.get_running_loop().time
    has_more = True
    while has_more:
        began = clock()
        try:
            async with asyncio.timeout(left_s):
                message = await receive()
        except TimeoutError:
            raise RequestTimedOut(f"The body did not arrive within {limits.timeout_s:g} seconds.") from None
        left_s -= clock() - began
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk = message.get("body", b"")
        left_bytes -= len(chunk)
        if left_bytes < 0:
            raise _too_large(limits)
        has_more = message.get("more_body", False)
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


def _check_headers(headers: Headers, limits: BodyLimits) -> int:
    """Return the length of the body, 0 if it is chunked. Raises an error if a header violates a limit."""
    length = 0
    for name, value in headers:
        if name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            raise UnsupportedEncoding("Compressed bodies are not accepted. Send uncompressed JSON.")
        # The HTTP parser accepts only digits here.
        if name == b"content-length":
            length = int(value)
            if length > limits.max_bytes:
                raise _too_large(limits)
    return length


async def _collect(receive: Receive, limits: BodyLimits, held: HeldBytes) -> bytes | bytearray:
    reserved = held.count
    body = bytearray()  # grows in place, so that a large body is never in memory twice
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk: bytes = message.get("body", b"")
        has_more = message.get("more_body", False)
        if not body and not has_more:
            return chunk
        body += chunk
        if len(body) > limits.max_bytes:
            raise _too_large(limits)
        if len(body) > reserved:  # the body is chunked
            held.reserve(len(chunk))
        if not has_more:
            return body


def _too_large(limits: BodyLimits) -> BodyTooLarge:
    return BodyTooLarge(f"The body is larger than {limits.max_bytes} bytes. {limits.advice}")


def allow_body_time(scope: Scope, seconds: float) -> None:
    """Set the time limit, in seconds, for the client to send the body of this request."""
    allow = scope.get(BODY_TIME)
    if allow is not None:  # absent where the application runs without `protocol`
        allow(seconds)


def watch_client(scope: Scope, receive: Receive, on_leave: Callable[[], None]) -> Callable[[], object]:
    """Call `on_leave` if the client disconnects, until the returned function is called.

    The body must have been read.
    """
    watch = scope.get(CLIENT_WATCH)
    if watch is not None:
        stop: Callable[[], object] = watch(on_leave)
        return stop

    async def wait() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        on_leave()

    return asyncio.ensure_future(wait()).cancel  # absent where the application runs without `protocol`
