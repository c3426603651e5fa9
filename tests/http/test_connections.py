"""Answers reach clients that pipeline, half-close or cut their bytes; what clients may hold is bounded."""

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from support.http_server import (
    MODEL,
    QUIET,
    HttpServer,
    hanging_engine,
    receive_all,
    send_all,
    serve_in_thread,
    wait_until,
)
from vecmill.config import BatchConfig, MillConfig
from vecmill_server.base.settings import ServerSettings
from vecmill_server.http1 import client_output
from vecmill_server.http1.client_output import ClientOutput
from vecmill_server.http1.protocol import HttpConnection

MIB = 1024 * 1024
CORPUS = Path(__file__).parent / "corpus"

BODY = b'{"input": "hello"}'
HEAD = b"POST /embeddings HTTP/1.1\r\nhost: x\r\n"
REQUEST = HEAD + b"content-length: 18\r\n\r\n" + BODY
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def hasty() -> Iterator[HttpServer]:
    """A server that waits for nobody, with small buffers and few connections."""
    settings = ServerSettings(
        lame_duck_s=0,
        drain_s=5,
        access_log=False,
        header_timeout_s=0.4,
        body_timeout_s=2.0,
        write_timeout_s=0.4,
        max_body_bytes=8 * MIB,
        max_buffered_bytes=16 * MIB,
        max_connections=40,
    )
    with serve_in_thread(settings) as server:
        yield server


@pytest.fixture
def stuck() -> Iterator[HttpServer]:
    """One lane, whose first call hangs until `engine.released` is set."""
    config = MillConfig(cores=1, batch=BatchConfig(max_batch_tokens=8))
    with serve_in_thread(
        replace(QUIET, header_timeout_s=0.3), config=config, engine=hanging_engine()
    ) as server:
        yield server


def statuses(answer: bytes) -> list[int]:
    """The status of each answer on a connection."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


def send_slowly(connection: socket.socket, data: bytes, size: int = 1) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for start in range(0, len(data), size):
        send_all(connection, data[start : start + size])


# ---------------------------------------------------------------- answers are not lost


@pytest.mark.parametrize("begun", [b"P", b"\r\n", REQUEST[:40]])
def test_an_answer_is_not_lost_to_a_next_request_that_does_not_come(stuck: HttpServer, begun: bytes) -> None:
    with stuck.connect() as connection:
        connection.sendall(REQUEST + begun)
        wait_until(lambda: len(stuck.engine.calls) == 1)
        time.sleep(0.5)  # more than the time for a head
        stuck.engine.released.set()
        assert statuses(connection.recv(65_536)) == [200]


def test_a_client_that_closes_its_sending_side_gets_its_answer(server: HttpServer) -> None:
    for request in (REQUEST, REQUEST * 3, CHUNKED + b"12\r\n" + BODY + b"\r\n0\r\n\r\n"):
        with server.connect() as connection:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            assert set(statuses(receive_all(connection))) == {200}


def test_an_answer_that_takes_long_reaches_a_half_closed_client_after_an_interim_one(
    stuck: HttpServer,
) -> None:
    with stuck.connect() as connection:
        connection.sendall(REQUEST)
        wait_until(lambda: len(stuck.engine.calls) == 1)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(65_536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        stuck.engine.released.set()
        assert statuses(receive_all(connection)) == [200]
    assert stuck.metric("vecmill_texts_finished_total", model=MODEL, outcome="done") == 1


def test_requests_wait_their_turn_however_many_arrive_at_once(server: HttpServer) -> None:
    count = 2_000  # 200 KB, more than a connection keeps
    with server.connect() as connection:
        thread = threading.Thread(
            target=send_all, args=(connection, b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n" * count)
        )
        thread.start()
        received = b""
        while received.count(b"HTTP/1.1 200 OK") < count:
            received += connection.recv(65_536)
        thread.join()


# ---------------------------------------------------------------- where bytes are cut does not matter


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.http")), ids=lambda path: path.stem)
def test_the_same_bytes_get_the_same_answer_whole_and_one_by_one(server: HttpServer, path: Path) -> None:
    def without_ids(answer: bytes) -> tuple[list[int], bytes]:
        return statuses(answer), answer.partition(b"\r\n\r\n")[2]

    data = path.read_bytes()
    with server.connect() as connection:
        send_slowly(connection, data)
        assert without_ids(receive_all(connection)) == without_ids(server.exchange(data))


JAVA = (
    b"POST /embeddings HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nContent-Length: 18\r\nHost: x\r\n"
    b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\nUpgrade: h2c\r\n\r\n"
)


@pytest.mark.parametrize("at", [*range(150, len(JAVA) + 1, 7), *range(len(JAVA) - 6, len(JAVA))])
def test_a_declined_upgrade_may_be_cut_anywhere(server: HttpServer, at: int) -> None:
    with server.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(JAVA[:at])
        time.sleep(0.01)
        connection.sendall(JAVA[at:] + BODY + b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert statuses(receive_all(connection)) == [200, 200]


# ---------------------------------------------------------------- what a client may send


def test_trailers_have_a_limit(server: HttpServer) -> None:
    with server.connect() as connection:
        connection.sendall(CHUNKED + b"12\r\n" + BODY + b"\r\n0\r\n")
        send_slowly(connection, b"x-trailer: value\r\n" * 100_000, 60_000)
        assert statuses(receive_all(connection)) == [431]
    assert server.is_well()


def test_trailers_within_the_limit_are_ignored(server: HttpServer) -> None:
    answer = server.exchange(
        CHUNKED
        + b"12\r\n"
        + BODY
        + b"\r\n0\r\nx: y\r\n\r\nGET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    )
    assert statuses(answer) == [200, 200]


def test_a_body_that_is_not_valid_is_counted_once() -> None:
    with serve_in_thread() as server:
        with server.connect() as connection:
            connection.sendall(CHUNKED + b"2\r\n{}\r\n")
            time.sleep(0.05)
            connection.sendall(b"zz\r\n")
            assert statuses(receive_all(connection)) == [400]
        text = server.client.get("/metrics").text
        counts = [line for line in text.splitlines() if line.startswith("vecmill_http_requests_total")]
        assert counts == ['vecmill_http_requests_total{route="embeddings",status="400"} 1.0']


@pytest.mark.parametrize(
    "item", [b"[]", b"{}", b'""', b"1", b'{"a":1}'], ids=["lists", "objects", "strings", "numbers", "pairs"]
)
def test_documents_of_many_small_values_are_refused_before_they_are_decoded(
    server: HttpServer, item: bytes
) -> None:
    body = b'{"input": [' + b",".join([item] * (4 * MIB // len(item))) + b"]}"
    answer = server.client.post("/embeddings", content=body)
    assert answer.status_code == 400
    assert "JSON values" in answer.json()["error"]["message"]


# ---------------------------------------------------------------- what a client may hold


def test_a_body_that_does_not_fit_is_503_before_it_is_sent(hasty: HttpServer) -> None:
    large = HEAD + b"content-length: %d\r\n\r\n" % (7 * MIB)
    with hasty.connect() as first:
        first.sendall(large)
        wait_until(lambda: hasty.service.budget.held >= 7 * MIB)
        with hasty.connect() as second:
            second.sendall(large)
            answer = second.recv(65_536)
        assert statuses(answer) == [503]
        assert b"\r\nretry-after: " in answer
        assert hasty.is_well()  # small requests still fit
        assert statuses(receive_all(first)) == [408]
    wait_until(lambda: hasty.service.budget.held == 0)
    assert "\nvecmill_buffered_bytes 0.0\n" in hasty.client.get("/metrics").text


def test_a_chunked_body_that_grows_too_large_for_the_buffers_is_503(hasty: HttpServer) -> None:
    with hasty.connect() as first, hasty.connect() as second:
        first.sendall(HEAD + b"content-length: %d\r\n\r\n" % (8 * MIB))
        wait_until(lambda: hasty.service.budget.held >= 8 * MIB)
        second.sendall(CHUNKED)
        thread = threading.Thread(
            target=send_all, args=(second, (b"10000\r\n" + b" " * 65_536 + b"\r\n") * 100)
        )
        thread.start()
        assert statuses(second.recv(65_536)) == [503]
        thread.join()
    wait_until(lambda: hasty.service.budget.held == 0)


@pytest.mark.parametrize("rate", [0, 1_000])
def test_a_client_that_does_not_take_its_answer_is_closed(hasty: HttpServer, rate: int) -> None:
    body = json.dumps({"input": ["a"] * 2_048, "encoding_format": "float"}).encode()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.settimeout(10)
        connection.connect(("127.0.0.1", hasty.port))
        connection.sendall(HEAD + b"content-length: %d\r\n\r\n%s" % (len(body), body))
        wait_until(lambda: hasty.service.budget.held > MIB)
        before = len(hasty.runner.server_state.connections)
        began = time.monotonic()
        while hasty.service.budget.held:
            if rate:
                connection.recv(rate // 10)
            time.sleep(0.1)
            assert time.monotonic() - began < 5
        wait_until(lambda: len(hasty.runner.server_state.connections) < before)
    assert hasty.is_well()


def test_a_client_that_reads_steadily_gets_all_of_a_large_answer(hasty: HttpServer) -> None:
    body = json.dumps({"input": ["a"] * 2_048, "encoding_format": "float"}).encode()
    with hasty.connect() as connection:
        connection.sendall(HEAD + b"connection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        answer = receive_all(connection)
    head, _, content = answer.partition(b"\r\n\r\n")
    assert len(json.loads(content)["data"]) == 2_048
    assert b"content-length: %d\r\n" % len(content) in head.lower() + b"\r\n"


def test_connections_over_the_limit_are_503_and_those_within_it_go_on(hasty: HttpServer) -> None:
    assert hasty.is_well()  # on a connection that stays open
    others = [hasty.connect() for _ in range(39)]
    wait_until(lambda: len(hasty.runner.server_state.connections) == 40)
    try:
        with hasty.connect() as refused:
            answer = receive_all(refused)
        assert statuses(answer) == [503]
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "service_unavailable"
        assert hasty.is_well()
        for other in others:
            assert statuses(receive_all(other)) == [408]
    finally:
        for other in others:
            other.close()
    assert hasty.is_well()


def test_a_stop_does_not_wait_for_clients_that_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_output, "STOPPING_WRITE_S", 0.3)
    body = json.dumps({"input": ["a"] * 2_048, "encoding_format": "float"}).encode()
    with serve_in_thread(replace(QUIET, drain_s=20.0)) as server, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(HEAD + b"content-length: %d\r\n\r\n%s" % (len(body), body))
        wait_until(lambda: server.service.budget.held > MIB)
        server.service.drain.stop(time.monotonic(), at_once=True)
        began = time.monotonic()
        wait_until(lambda: not server.runner.server_state.connections)
        assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("start", "piece", "limit"),
    [
        (b"GET /livez HTTP/1.1\r\nhost: x\r\nx-large: ", b"a" * 65_536, 16 * 1024),
        (CHUNKED, b"10000\r\n" + b" " * 65_536 + b"\r\n", 8 * MIB),
        (CHUNKED + b"0\r\n", b"x-trailer: " + b"a" * 65_536, 16 * 1024),
    ],
    ids=["headers", "body", "trailers"],
)
def test_little_more_than_the_limit_is_read_before_the_refusal(
    hasty: HttpServer, start: bytes, piece: bytes, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_bytes: list[int] = []
    read_at_refusal: list[int] = []
    count, write = HttpConnection.buffer_updated, ClientOutput.write

    def counted(self: HttpConnection, nbytes: int) -> None:
        read_bytes.append(nbytes)
        count(self, nbytes)

    def noticed(self: ClientOutput, data: bytes) -> None:
        read_at_refusal.append(sum(read_bytes))
        write(self, data)

    monkeypatch.setattr(HttpConnection, "buffer_updated", counted)
    monkeypatch.setattr(ClientOutput, "write", noticed)
    with hasty.connect() as connection:
        thread = threading.Thread(target=send_all, args=(connection, start + piece * 200))
        thread.start()
        assert statuses(connection.recv(65_536))[0] in (413, 431)
        thread.join()
    framing_bytes = 10 * limit // 65_536
    assert read_at_refusal[0] <= limit + 64 * 1024 + len(start) + framing_bytes
