"""Reading the body of a request within its limits: bytes, time, and no compression."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from starlette.types import Receive

from vecmill_server.errors import BodyTooLarge, ClientGone, RequestTimedOut, UnsupportedEncoding
from vecmill_server.settings import ServerSettings

Headers = Iterable[tuple[bytes, bytes]]

# After a refusal the rest of the body is read and thrown away, because a client that is still
# sending does not look for the answer. Not without end, though.
DISCARD_FACTOR = 8
DISCARD_S = 10.0


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """What a body may cost."""

    max_bytes: int
    timeout_s: float

    @classmethod
    def of(cls, settings: ServerSettings) -> "BodyLimits":
        """The limits in `settings`."""
        return cls(settings.max_body_bytes, settings.body_timeout_s)


async def read_body(headers: Headers, receive: Receive, limits: BodyLimits) -> bytes:
    """The whole body.

    Raises `UnsupportedEncoding` and `BodyTooLarge` before reading where the headers tell, and
    `BodyTooLarge`, `RequestTimedOut` or `ClientGone` while reading.
    """
    _check_headers(headers, limits)
    try:
        async with asyncio.timeout(limits.timeout_s):
            return await _collect(receive, limits)
    except TimeoutError:
        raise RequestTimedOut(f"The body did not arrive within {limits.timeout_s:g} seconds.") from None


async def discard_body(receive: Receive, limits: BodyLimits) -> None:
    """Throw away what is still arriving, up to `DISCARD_FACTOR` bodies and `DISCARD_S` seconds."""
    left = DISCARD_FACTOR * limits.max_bytes
    try:
        async with asyncio.timeout(DISCARD_S):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return


def _check_headers(headers: Headers, limits: BodyLimits) -> None:
    for name, value in headers:
        if name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            raise UnsupportedEncoding("Compressed bodies are not accepted. Send the JSON as it is.")
        # The parser has let only digits through.
        if name == b"content-length" and int(value) > limits.max_bytes:
            raise _too_large(limits)


async def _collect(receive: Receive, limits: BodyLimits) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limits.max_bytes:
            raise _too_large(limits)
        if not message.get("more_body", False):
            return b"".join([*chunks, chunk]) if chunks else chunk
        chunks.append(chunk)


def _too_large(limits: BodyLimits) -> BodyTooLarge:
    return BodyTooLarge(f"The body is larger than {limits.max_bytes} bytes. Send fewer texts at a time.")
