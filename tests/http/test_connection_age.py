"""Clients connect again when their connections reach the longest age, and lose no request."""

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest

from support.http_server import (
    DIM,
    QUIET,
    HttpServer,
    build_service,
    receive_all,
    run_in_thread,
    serve_in_thread,
    wait_until,
)
from vecmill.bulk.embedder import EmbedParameters
from vecmill.bulk.remote import open_remote
from vecmill.directory_layouts import describe_model
from vecmill.engines.fake import FakeEngine
from vecmill.models import locate_model
from vecmill_server.base.settings import Address, ServerSettings
from vecmill_server.bench.generator import LoadRun, Orders
from vecmill_server.bench.request_sets import ServerApi
from vecmill_server.bench.target import MeasuredServer
from vecmill_server.http1.protocol import HttpConnection
from vecmill_server.process.listener import Listener

AGE_S = 0.05
BODY = b'{"input": "hello"}'
AGED = replace(QUIET, max_connection_age_s=AGE_S)
PATIENCE_S = 20.0


@pytest.fixture
def server() -> Iterator[HttpServer]:
    """A server whose connections end after 40 to 50 ms."""
    with serve_in_thread(AGED) as server:
        yield server


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the connections that are made."""
    made = Counter[str]()
    make = HttpConnection.connection_made

    def counted(self: HttpConnection, transport: asyncio.BaseTransport) -> None:
        made["made"] += 1
        make(self, transport)

    monkeypatch.setattr(HttpConnection, "connection_made", counted)
    return made


def test_connections_end_after_some_minutes_by_default() -> None:
    assert 60 <= ServerSettings().max_connection_age_s <= 600


@pytest.mark.parametrize("load", [{"clients": 4}, {"rate_hz": 300.0}], ids=["closed loop", "open loop"])
def test_the_generator_of_bench_connects_again_without_an_error(
    server: HttpServer, connections: Counter[str], load: dict[str, float]
) -> None:
    target = MeasuredServer.of(f"http://127.0.0.1:{server.port}", ServerApi.EMBEDDINGS, None)
    orders = {
        "clients": None,
        "rate_hz": None,
        "duration_s": 0.6,
        "warm_s": 0.0,
        "timeout_s": PATIENCE_S,
        **load,
    }
    run = LoadRun(Orders(target, bodies_file="", seed=5, **orders), [BODY])  # type: ignore[arg-type]
    found = asyncio.run(run.run())
    assert set(found["statuses"]) == {200}
    assert found["statuses"][200] > 50
    assert connections["made"] > 8


async def test_embed_with_a_server_connects_again_without_an_error(
    server: HttpServer, connections: Counter[str]
) -> None:
    async with open_remote(f"http://127.0.0.1:{server.port}", None, EmbedParameters()) as embedder:
        while connections["made"] < 5:
            assert len((await embedder.embed(["a", "b"])).embeddings) == 2


def test_a_client_that_sends_many_requests_at_once_loses_none(server: HttpServer) -> None:
    """The connection is old long before the last of them is answered."""
    request = b"POST /embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY)
    with server.connect() as connection:
        connection.sendall(request * 300)
        answers = receive_all(connection).split(b"HTTP/1.1 ")[1:]
    assert len(answers) == 300
    assert all(answer.startswith(b"200 ") for answer in answers)
    assert [b"\r\nconnection: close\r\n" in answer for answer in answers] == [False] * 299 + [True]


async def test_a_new_server_on_the_same_socket_gets_its_share_within_the_age() -> None:
    """Eight clients keep their connections. Another server starts, as a new process or pod does."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        port = listening.getsockname()[1]

        def listener() -> Listener:
            shared = socket.socket(fileno=os.dup(listening.fileno()))
            return Listener(shared, Address("127.0.0.1", port), is_inherited=True)

        statuses, is_over = Counter[int](), asyncio.Event()

        async def send() -> None:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client:
                while not is_over.is_set():
                    answer = await client.post("/embeddings", content=BODY)
                    statuses[answer.status_code] += 1
                    await asyncio.sleep(0.005)

        first, second = (
            build_service(AGED, [(describe_model(locate_model()), FakeEngine(dim=DIM))]) for _ in "ab"
        )
        with run_in_thread(first, listener=listener()) as (_, old):
            clients = [asyncio.create_task(send()) for _ in range(8)]
            await asyncio.to_thread(wait_until, lambda: statuses[200] >= 100)
            with run_in_thread(second, listener=listener()) as (_, new):
                await asyncio.to_thread(wait_until, lambda: new.server_state.total_requests >= 100)
                assert old.server_state.total_requests >= 100
                is_over.set()
                await asyncio.gather(*clients)
        assert set(statuses) == {200}
