"""The server that the tests of the page share."""

from collections.abc import Iterator

import httpx
import pytest

from support.http_server import serve_in_thread


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    """A client of a server without keys."""
    with serve_in_thread() as server:
        yield server.client
