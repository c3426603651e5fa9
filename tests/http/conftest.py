"""One server for the tests that leave no trace; the others start their own."""

from collections.abc import Iterator

import httpx
import pytest

from support.http_server import HttpServer, serve_in_thread


@pytest.fixture(scope="session")
def server() -> Iterator[HttpServer]:
    with serve_in_thread() as server:
        yield server


@pytest.fixture
def client(server: HttpServer) -> httpx.Client:
    return server.client
