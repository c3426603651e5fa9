"""One connection of the generator, which sends a request and reads the response."""

import asyncio
from collections.abc import Callable
from typing import cast

import httptools

# Lower statuses are interim responses, such as 100 Continue.
_FIRST_FINAL_STATUS = 200


class LoadConnection(asyncio.Protocol):
    """One connection, with at most one open request.

    It reads responses with a length and chunked responses (httptools). A response that ends with the
    connection is a broken connection.
    """

    def __init__(
        self, on_answer: Callable[["LoadConnection", int], None], on_lost: Callable[["LoadConnection"], None]
    ):
        self._on_answer = on_answer
        self._on_lost = on_lost
        self._parser = httptools.HttpResponseParser(self)
        self.transport: asyncio.Transport | None = None
        self.due_at = 0.0
        self.is_busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's has another base class

    def send(self, request: bytes, due_at: float) -> None:
        """Send a request that was due at `due_at`."""
        assert self.transport is not None
        self.due_at, self.is_busy = due_at, True
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()

    def on_message_complete(self) -> None:
        """Take the end of a response, called by the parser."""
        if self._parser.get_status_code() < _FIRST_FINAL_STATUS:
            return
        status, keeps_alive = self._parser.get_status_code(), self._parser.should_keep_alive()
        self._parser = httptools.HttpResponseParser(self)
        self.is_busy = False
        if not keeps_alive:
            self.close()
        self._on_answer(self, status)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self._on_lost(self)

    @property
    def is_open(self) -> bool:
        """Whether a request can be sent."""
        return self.transport is not None and not self.transport.is_closing()

    def close(self) -> None:
        """Close the connection now."""
        if self.transport is not None:
            self.transport.abort()
