"""Every size and every wait is bounded; what is over gets its documented answer, and the server goes on."""

import json
import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from support.http_server import (
    HttpServer,
    hanging_engine,
    occupy,
    receive_all,
    send_all,
    serve_in_thread,
    wait_until,
)
from vecmill.config import BatchConfig, MillConfig, QueueConfig
from vecmill_server.base.settings import ServerSettings

MIB = 1024 * 1024

HEAD = b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\n"
BODY = b'{"input": "hello"}'


@pytest.fixture(scope="module")
def hasty() -> Iterator[HttpServer]:
    """A server that waits for nobody."""
    settings = ServerSettings(lame_duck_s=0, header_timeout_s=0.3, body_timeout_s=0.3, max_body_bytes=MIB)
    with serve_in_thread(settings) as server:
        yield server


def status_and_error(answer: bytes) -> tuple[int, dict[str, str]]:
    head, _, body = answer.partition(b"\r\n\r\n")
    error: dict[str, str] = json.loads(body)["error"]
    return int(head.split()[1]), error


@pytest.mark.promise("bounded-input")
@pytest.mark.parametrize("mebibytes", [40, pytest.param(200, marks=pytest.mark.full)])
@pytest.mark.parametrize("is_chunked", [False, True], ids=["declared", "chunked"])
def test_a_body_that_is_too_large_is_413_and_the_client_gets_to_read_it(
    server: HttpServer, mebibytes: int, is_chunked: bool
) -> None:
    chunk = b"x" * MIB
    headers = {} if is_chunked else {"content-length": str(mebibytes * MIB)}
    answer = server.client.post("/embeddings", content=(chunk for _ in range(mebibytes)), headers=headers)
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "request_too_large"
    assert server.is_well()


def test_a_client_that_sends_everything_before_it_reads_is_not_cut_off(server: HttpServer) -> None:
    with server.connect() as connection:
        connection.sendall(HEAD + b"content-length: %d\r\n\r\n" % (40 * MIB))
        for _ in range(40):
            connection.sendall(b"x" * MIB)
        assert receive_all(connection).startswith(b"HTTP/1.1 413 ")


def test_a_large_body_is_answered_before_it_has_arrived(server: HttpServer) -> None:
    with server.connect() as connection:
        connection.sendall(HEAD + b"content-length: 99999999\r\n\r\nonly a little")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 413 ")


def test_a_client_that_asks_first_is_spared_the_sending(server: HttpServer) -> None:
    answer = server.exchange(HEAD + b"expect: 100-continue\r\ncontent-length: 99999999\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_eight_mebibytes_of_text_are_an_ordinary_request(server: HttpServer) -> None:
    texts = ["many words " * 7_500] * 100
    answer = server.client.post("/embeddings", json={"input": texts, "dimensions": 4})
    assert answer.status_code == 200
    assert len(answer.json()["data"]) == 100


@pytest.mark.promise("no-decompression")
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "GZIP", "nonsense"])
def test_compressed_bodies_are_415_unread(client: httpx.Client, encoding: str) -> None:
    answer = client.post("/embeddings", content=b"\x1f\x8b", headers={"content-encoding": encoding})
    assert answer.status_code == 415
    assert answer.json()["error"]["code"] == "unsupported_encoding"


def test_identity_is_no_compression(client: httpx.Client) -> None:
    answer = client.post("/embeddings", content=BODY, headers={"content-encoding": "identity"})
    assert answer.status_code == 200


@pytest.mark.promise("bounded-input")
@pytest.mark.parametrize("size", [17 * 1024, MIB])
def test_headers_that_are_too_large_are_431(server: HttpServer, size: int) -> None:
    for head in (
        HEAD + b"x-large: " + b"a" * size + b"\r\n\r\n",
        HEAD + b"x: y\r\n" * (size // 6) + b"\r\n",
        b"GET /" + b"a" * size + b" HTTP/1.1\r\nhost: x\r\n\r\n",
    ):
        status, error = status_and_error(server.exchange(head))
        assert status == 431
        assert error["code"] == "headers_too_large"
    assert server.is_well()


@pytest.mark.promise("bounded-input")
def test_headers_that_never_end_are_431(server: HttpServer) -> None:
    assert status_and_error(server.exchange(HEAD + b"x-endless: " + b"a" * 20_000))[0] == 431


def test_headers_within_the_limit_pass(server: HttpServer) -> None:
    head = HEAD + b"connection: close\r\nx-large: " + b"a" * 15_000
    assert server.exchange(head + b"\r\ncontent-length: 18\r\n\r\n" + BODY).startswith(b"HTTP/1.1 200 ")


def test_a_request_a_byte_at_a_time_is_answered(server: HttpServer) -> None:
    request = HEAD + b"connection: close\r\ncontent-length: 18\r\n\r\n" + BODY
    with server.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for value in request:
            connection.sendall(bytes([value]))
        assert receive_all(connection).startswith(b"HTTP/1.1 200 ")


@pytest.mark.promise("slow-clients")
@pytest.mark.parametrize(
    "start",
    [HEAD + b"content-length: 18\r\n\r\n", HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n"],
    ids=["declared", "chunked"],
)
def test_a_body_that_does_not_come_is_408(hasty: HttpServer, start: bytes) -> None:
    status, error = status_and_error(hasty.exchange(start))
    assert status == 408
    assert error["code"] == "request_timeout"
    assert hasty.is_well()


@pytest.mark.promise("slow-clients")
def test_a_body_that_trickles_is_408_too(hasty: HttpServer) -> None:
    with hasty.connect() as connection:
        connection.sendall(HEAD + b"content-length: 1000\r\n\r\n")
        stop = threading.Event()
        thread = threading.Thread(target=trickle, args=(connection, stop))
        thread.start()
        try:
            answer = receive_all(connection)
        except ConnectionResetError:
            answer = b""
        finally:
            stop.set()
            thread.join()
    assert answer.startswith(b"HTTP/1.1 408 ")


def trickle(connection: socket.socket, stop: threading.Event) -> None:
    while not stop.wait(0.02):
        send_all(connection, b" ")


@pytest.mark.promise("slow-clients")
@pytest.mark.parametrize("start", [b"", HEAD, b"POST /v1/emb"])
def test_headers_that_do_not_come_are_408(hasty: HttpServer, start: bytes) -> None:
    began = time.monotonic()
    assert status_and_error(hasty.exchange(start))[0] == 408
    assert time.monotonic() - began < 5
    assert hasty.is_well()


def test_a_second_request_has_the_same_time_for_its_headers(hasty: HttpServer) -> None:
    with hasty.connect() as connection:
        connection.sendall(HEAD + b"content-length: 18\r\n\r\n" + BODY)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"POST /v1/")
        rest = receive_all(connection)
    assert b"HTTP/1.1 408 " in rest


@pytest.fixture
def stuck() -> Iterator[HttpServer]:
    """One lane, whose first call hangs until `engine.released` is set; three texts may wait."""
    config = MillConfig(cores=1, queue=QueueConfig(max_queue_texts=4), batch=BatchConfig(max_batch_tokens=4))
    with serve_in_thread(ServerSettings(lame_duck_s=0), config=config, engine=hanging_engine()) as server:
        yield server


@pytest.mark.promise("time-to-return", "goodput-kept")
def test_a_full_queue_is_429_and_says_when_to_come_again(stuck: HttpServer) -> None:
    threads = [occupy(stuck, 1)]
    wait_until(lambda: len(stuck.engine.calls) == 1)
    threads.append(occupy(stuck, 3))
    answer = stuck.client.post("/embeddings", json={"input": ["one more", "and another"]})
    assert answer.status_code == 429
    assert answer.json()["error"]["type"] == "rate_limit_error"
    assert 1 <= int(answer.headers["retry-after"]) <= 30
    assert 1 <= int(answer.headers["retry-after-ms"]) <= 30_000
    stuck.engine.released.set()
    for thread in threads:
        thread.join()
    assert stuck.is_well()


@pytest.mark.promise("all-or-nothing")
def test_a_request_that_could_never_fit_is_413(stuck: HttpServer) -> None:
    answer = stuck.client.post("/embeddings", json={"input": ["a"] * 5})
    assert answer.status_code == 413
    assert "retry-after" not in answer.headers


@pytest.mark.promise("deadlines-kept")
def test_a_deadline_that_passes_is_504_and_the_text_is_not_computed(stuck: HttpServer) -> None:
    thread = occupy(stuck, 1)
    wait_until(lambda: len(stuck.engine.calls) == 1)
    answer = stuck.client.post("/embeddings", json={"input": "late"}, headers={"x-request-timeout-ms": "50"})
    assert answer.status_code == 504
    assert answer.json()["error"]["code"] == "timeout"
    stuck.engine.released.set()
    thread.join()
    assert stuck.metric("vecmill_texts_finished_total", model="all-MiniLM-L6-v2", outcome="expired") == 1
    assert len(stuck.engine.calls) == 1


def test_the_first_request_for_8_bits_keeps_to_its_deadline_too() -> None:
    """It waits for the model's ranges, which are found once; whoever comes later finds them there."""
    with serve_in_thread(config=MillConfig(cores=1), engine=hanging_engine(1)) as server:
        asked = {"input": "hello", "output_dtype": "int8"}
        late = server.client.post("/embeddings", json=asked, headers={"x-request-timeout-ms": "500"})
        assert (late.status_code, late.json()["error"]["code"]) == (504, "timeout")
        server.engine.released.set()
        assert server.client.post("/embeddings", json=asked).status_code == 200


def test_the_first_request_for_8_bits_keeps_to_the_time_limit_of_the_server() -> None:
    config = MillConfig(cores=1, queue=QueueConfig(timeout_s=0.5))
    with serve_in_thread(config=config, engine=hanging_engine(1)) as server:
        asked = {"input": "hello", "output_dtype": "uint8"}
        began = time.monotonic()
        late = server.client.post("/embeddings", json=asked)
        assert (late.status_code, late.json()["error"]["code"]) == (504, "timeout")
        assert time.monotonic() - began < 5
        server.engine.released.set()
        wait_until(lambda: server.client.post("/embeddings", json=asked).status_code == 200)


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "soon", "1" * 10, "", "٣".encode()])
def test_a_timeout_that_is_no_number_is_400(client: httpx.Client, value: str) -> None:
    answer = client.post("/embeddings", content=BODY, headers={"x-request-timeout-ms": value})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "x-request-timeout-ms"
