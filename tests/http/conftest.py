"""One server for the tests that leave no trace; the others start their own."""

from collections.abc import Iterator

import httpx
import pytest

from support.described_models import describe_tasks
from support.http_server import HttpServer, serve_in_thread


@pytest.fixture(scope="session")
def server() -> Iterator[HttpServer]:
    with serve_in_thread() as server:
        yield server


@pytest.fixture(scope="session")
def every_task() -> Iterator[HttpServer]:
    """A model for each task, in one server."""
    with serve_in_thread(models=list(describe_tasks().values())) as server:
        yield server


@pytest.fixture
def client(server: HttpServer) -> httpx.Client:
    return server.client
