"""docs/reverse-proxies.md keeps its claims: Debian's nginx and Caddy before live servers."""

import asyncio
import json
import random
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from chaos.rolling_restarts import Load
from proxies.running import PAGE, Proxy, running_proxy
from support.http_server import (
    DIM,
    MODEL,
    QUIET,
    HttpServer,
    occupy,
    receive_all,
    serve_in_thread,
    wait_until,
)
from support.server import free_port, wait_until_ready
from vecmill.config import BatchConfig, MillConfig, QueueConfig
from vecmill.engines.fake import FakeEngine, Fault, FaultScript
from vecmill_server.base.settings import ServerSettings

pytestmark = pytest.mark.full

PATIENCE_S = 30.0
MIB = 1024 * 1024


@pytest.fixture(
    params=[
        pytest.param(
            kind,
            marks=pytest.mark.skipif(
                shutil.which(kind) is None and not Path(f"/usr/sbin/{kind}").exists(),
                reason=f"needs Debian's package {kind}",
            ),
        )
        for kind in ("nginx", "caddy")
    ]
)
def kind(request: pytest.FixtureRequest) -> str:
    """The name of a proxy, and of its package."""
    return str(request.param)


@contextmanager
def before(
    server: HttpServer, kind: str, folder: Path, **changes: str
) -> Iterator[tuple[Proxy, httpx.Client]]:
    """A proxy before one server, which stands for both servers of the page, and a client of the proxy."""
    address = f"127.0.0.1:{server.port}"
    with running_proxy(kind, folder, [address, address], changes) as proxy, client_of(proxy) as client:
        yield proxy, client


def client_of(proxy: Proxy) -> httpx.Client:
    return httpx.Client(base_url=proxy.url, verify=proxy.tls, timeout=PATIENCE_S)


def connect(proxy: Proxy) -> ssl.SSLSocket:
    bare = socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE_S)
    return proxy.tls.wrap_socket(bare, server_hostname="127.0.0.1")


def test_requests_are_answered_also_those_of_pages_of_the_same_origin(kind: str, tmp_path: Path) -> None:
    with serve_in_thread() as server, before(server, kind, tmp_path) as (_, client):
        page = {
            "origin": "https://embed.example.com",
            "sec-fetch-site": "same-origin",
            "user-agent": "Mozilla",
        }
        for headers in ({}, page):
            answer = client.post("/v1/embeddings", json={"input": "a"}, headers=headers)
            assert answer.status_code == 200, answer.text
            assert len(answer.json()["data"][0]["embedding"]) == DIM
        strange = {**page, "origin": "https://elsewhere.example", "sec-fetch-site": "cross-site"}
        assert client.post("/v1/embeddings", json={"input": "a"}, headers=strange).status_code == 403


def test_bodies_have_the_limit_of_the_server(kind: str, tmp_path: Path) -> None:
    limit = ServerSettings().max_body_bytes
    with serve_in_thread() as server, before(server, kind, tmp_path) as (_, client):
        for size, status in ((limit, 200), (limit + 1, 413)):
            body = b'{"input": "a"' + b" " * (size - 14) + b"}"
            assert len(body) == size
            answer = client.post("/v1/embeddings", content=body)
            assert answer.status_code == status, answer.text


def test_headers_have_the_limit_of_the_server(kind: str, tmp_path: Path) -> None:
    with serve_in_thread() as server, before(server, kind, tmp_path) as (_, client):
        answer = client.post("/v1/embeddings", json={"input": "a"}, headers={"x-long": "a" * 14_000})
        assert answer.status_code == 200


def test_a_slow_body_waits_in_nginx_and_in_the_server_behind_caddy(kind: str, tmp_path: Path) -> None:
    with (
        serve_in_thread(replace(QUIET, body_timeout_s=0.5)) as server,
        before(server, kind, tmp_path) as (proxy, _),
        connect(proxy) as connection,
    ):
        body = b'{"input": "a"}'
        connection.sendall(b"POST /v1/embeddings HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n")
        connection.sendall(b"content-length: %d\r\n\r\n" % len(body))
        with suppress(ssl.SSLError):  # Caddy closes the connection after a 408
            for byte in body[:10]:
                time.sleep(0.15)
                connection.sendall(bytes([byte]))
            connection.sendall(body[10:])
        status = receive_all(connection).split(b" ", 2)[1]
    assert status == (b"200" if kind == "nginx" else b"408")


@pytest.fixture
def stuck() -> Iterator[HttpServer]:
    """One lane, whose first call hangs until `engine.released` is set; three texts may wait."""
    engine = FakeEngine(dim=DIM, lane_widths=(1,), faults=FaultScript(calls={0: Fault.HANG}))
    config = MillConfig(cores=1, queue=QueueConfig(max_queue_texts=4), batch=BatchConfig(max_batch_tokens=4))
    with serve_in_thread(ServerSettings(lame_duck_s=0), config=config, engine=engine) as server:
        yield server


def test_a_429_keeps_its_body_and_retry_after(kind: str, stuck: HttpServer, tmp_path: Path) -> None:
    with before(stuck, kind, tmp_path) as (_, client):
        threads = [occupy(stuck, 1)]
        wait_until(lambda: len(stuck.engine.calls) == 1)
        threads.append(occupy(stuck, 3))
        body = {"input": ["one more", "and another"]}
        before_it = stuck.metric("vecmill_rejections_total", model=MODEL, reason="queue_full")
        answer, direct = (one.post("/v1/embeddings", json=body) for one in (client, stuck.client))
        stuck.engine.released.set()
        for thread in threads:
            thread.join()
        assert answer.status_code == direct.status_code == 429
        assert int(answer.headers["retry-after"]) >= 1
        assert int(answer.headers["retry-after-ms"]) >= 1
        assert answer.json()["error"].keys() == direct.json()["error"].keys()
        rejected = stuck.metric("vecmill_rejections_total", model=MODEL, reason="queue_full") - before_it
        assert rejected in (0, 2), "the proxy sent the request again"


def test_a_client_that_disconnects_cancels_its_texts(kind: str, stuck: HttpServer, tmp_path: Path) -> None:
    def cancelled() -> float:
        return stuck.metric("vecmill_texts_finished_total", model=MODEL, outcome="cancelled")

    with before(stuck, kind, tmp_path) as (proxy, _):
        thread = occupy(stuck, 1)
        wait_until(lambda: len(stuck.engine.calls) == 1)
        body = b'{"input": ["first", "second"]}'
        with connect(proxy) as connection:
            head = b"POST /v1/embeddings HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n" % len(
                body
            )
            connection.sendall(head + body)
            wait_until(lambda: stuck.metric("vecmill_texts_open", model=MODEL) == 3)
        wait_until(lambda: cancelled() == 2)
        stuck.engine.released.set()
        thread.join()


def test_metrics_are_closed_in_every_spelling(kind: str, tmp_path: Path) -> None:
    with serve_in_thread() as server, before(server, kind, tmp_path) as (proxy, client):
        assert server.client.get("/metrics").status_code == 200
        assert client.get("/livez").status_code == 200
        for path in (
            b"/metrics",
            b"/metrics/",
            b"/metrics//",
            b"//metrics",
            b"/%6detrics",
            b"/./metrics",
            b"/metrics?a",
        ):
            with connect(proxy) as connection:
                connection.sendall(b"GET %s HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n" % path)
                answer = receive_all(connection)
            assert b"vecmill_http_requests" not in answer, path
            assert answer.split(b" ", 2)[1] in (b"404", b"301", b"308"), path


def test_a_path_prefix(kind: str, tmp_path: Path) -> None:
    changes = {
        "nginx": {"location / {": "location /vecmill/ {"},
        "caddy": {
            "    handle {": "    handle /vecmill/* {",
            "health_uri /readyz": "health_uri /vecmill/readyz",
        },
    }[kind]
    assert all(new.strip() in PAGE for new in changes.values())
    with (
        serve_in_thread(replace(QUIET, url_prefix="/vecmill")) as server,
        before(server, kind, tmp_path, **changes) as (_, client),
    ):
        assert client.post("/vecmill/v1/embeddings", json={"input": "a"}).status_code == 200
        assert b"embedding" not in client.post("/v1/embeddings", json={"input": "a"}).content


def test_a_file_is_passed_on_while_it_arrives(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "batches"
    line = json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": {"input": "a"}})
    head = (
        b'--x\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--x\r\n'
        b'content-disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n' + line.encode() + b"\n"
    )
    content = b" " * (40 * MIB) + b"\n"
    length = len(head) + len(content) + len(b"\r\n--x--\r\n")
    with (
        serve_in_thread(replace(QUIET, batch_dir=folder)) as server,
        before(server, kind, tmp_path / "proxy") as (proxy, _),
        connect(proxy) as connection,
    ):
        connection.sendall(
            b"POST /v1/files HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-length: %d\r\n"
            b"content-type: multipart/form-data; boundary=x\r\n\r\n" % length
        )
        connection.sendall(head + content[: 20 * MIB])
        wait_until(lambda: sum(path.stat().st_size for path in (folder / "files").iterdir()) > 15 * MIB)
        connection.sendall(content[20 * MIB :] + b"\r\n--x--\r\n")
        answer = receive_all(connection)
        assert b" 200 " in answer.split(b"\r\n", 1)[0], answer
        assert server.client.get("/v1/files").json()["data"][0]["bytes"] == len(line) + 1 + len(content)


async def request_with_pauses(proxy: Proxy, number: int, requests: int, pause_s: float) -> Counter[int]:
    """The statuses of requests with pauses around `pause_s` between them."""
    dice, statuses = random.Random(number), Counter[int]()
    async with httpx.AsyncClient(base_url=proxy.url, verify=proxy.tls, timeout=PATIENCE_S) as client:
        for _ in range(requests):
            answer = await client.post("/v1/embeddings", json={"input": f"text {number}"})
            statuses[answer.status_code] += 1
            await asyncio.sleep(pause_s * (0.9 + 0.3 * dice.random()))
    return statuses


async def test_pauses_around_the_keep_alive_time_give_no_502(kind: str, tmp_path: Path) -> None:
    """4,000 requests. The times of the page, 60 s and 75 s, are divided by 150."""
    keep_alive_s = 0.5
    assert ServerSettings().keep_alive_s == 150 * keep_alive_s
    with (
        serve_in_thread(replace(QUIET, keep_alive_s=keep_alive_s)) as server,
        before(server, kind, tmp_path, **KEEP_ALIVE[kind]) as (proxy, _),
    ):
        found = await asyncio.gather(*(request_with_pauses(proxy, n, 100, keep_alive_s) for n in range(40)))
    assert sum(found, Counter()) == Counter({200: 4_000})


KEEP_ALIVE = {
    "nginx": {"keepalive_timeout 60s": "keepalive_timeout 400ms"},
    "caddy": {"keepalive 60s": "keepalive 400ms"},
}


class TlsLoad(Load):
    """Clients of a proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self._tls = proxy.tls
        super().__init__(("127.0.0.1", proxy.port), thinking_s=0.5)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        assert not isinstance(self._address, str)
        return await asyncio.open_connection(*self._address, ssl=self._tls)


@contextmanager
def served(port: int, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server process on this port."""
    command = [sys.executable, "-m", "vecmill", "serve", "--engine", "fake", "--port", str(port)]
    with (folder / f"server-{port}.log").open("ab") as log:
        process = subprocess.Popen([*command, "--no-access-log"], stdout=log, stderr=log)
    try:
        wait_until_ready(
            f"http://127.0.0.1:{port}",
            process,
            folder / f"server-{port}.log",
            deadline=time.perf_counter() + 60,
        )
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.promise("clean-stop")
async def test_restarting_one_server_after_the_other_loses_nothing(kind: str, tmp_path: Path) -> None:
    ports = [free_port(), free_port()]
    addresses = [f"127.0.0.1:{port}" for port in ports]
    running = [served(port, tmp_path) for port in ports]
    processes = [await asyncio.to_thread(one.__enter__) for one in running]
    try:
        with running_proxy(kind, tmp_path / "proxy", addresses) as proxy:
            load = TlsLoad(proxy)
            for number in range(4):
                await load.has_answers(150)
                place = number % 2
                await asyncio.to_thread(processes[place].terminate)
                assert await asyncio.to_thread(processes[place].wait, 60) == 0
                await load.has_answers(150)
                running[place] = served(ports[place], tmp_path)
                processes[place] = await asyncio.to_thread(running[place].__enter__)
            tally = await load.stop()
            await asyncio.sleep(0.05)  # for the connections to close
    finally:
        for one in running:
            one.__exit__(None, None, None)
    print(f"{kind}: {tally.answers} answers, {len(tally.lost)} lost, {tally.refused} refused")
    assert (tally.lost, tally.refused) == ([], 0)


def test_a_unix_socket(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "vecmill.sock"
    address = {"nginx": f"unix:{path}", "caddy": f"unix/{path}"}[kind]
    command = [sys.executable, "-m", "vecmill", "serve", "--engine", "fake", "--uds", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        try:
            assert b"socket" in server.stdout.readline()
            with (
                running_proxy(kind, tmp_path / "proxy", [address, address]) as proxy,
                client_of(proxy) as client,
            ):
                assert client.post("/v1/embeddings", json={"input": "a"}).status_code == 200
        finally:
            server.terminate()
