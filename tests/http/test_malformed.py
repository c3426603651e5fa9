"""Whatever bytes arrive: a documented 4xx in JSON, no 5xx, no hang, and the server goes on."""

import json
import socket
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.http_server import HttpServer, receive_all, send_all

CORPUS = Path(__file__).parent / "corpus"

EMBEDDINGS = b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"

BROKEN_BODIES = {
    "empty": b"",
    "space": b"   ",
    "not JSON": b"hello",
    "cut short": b'{"input": "hel',
    "trailing": b'{"input": "a"} {',
    "a comma": b'{"input": ["a",]}',
    "single quotes": b"{'input': 'a'}",
    "a list": b'["a"]',
    "a string": b'"a"',
    "null": b"null",
    "a number": b"1",
    "NaN": b'{"input": "a", "dimensions": NaN}',
    "a byte order mark": b'\xef\xbb\xbf{"input": "a"}',
    "UTF-16": '{"input": "a"}'.encode("utf-16"),
    "not UTF-8": b'{"input": "\xff\xfe"}',
    "a lone surrogate": b'{"input": "\\ud800"}',
    "a lone low surrogate": b'{"input": ["a", "\\udc00"]}',
    "an encoded surrogate": b'{"input": "\xed\xa0\x80"}',
    "a control character": b'{"input": "\x01"}',
    "100,000 lists": b'{"input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "100,000 open lists": b"[" * 100_000,
    "100,000 objects": b'{"input": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    "1,000 lists": b'{"input": ' + b"[" * 1_000 + b"]" * 1_000 + b"}",
    "NUL": b"\x00" * 10,
    "a huge number": b'{"input": "a", "dimensions": ' + b"9" * 100_000 + b"}",
    "a huge exponent": b'{"input": "a", "dimensions": 1e400}',
}


def is_documented_refusal(answer: bytes) -> bool:
    """Whether this is one whole 4xx with an error object."""
    head, _, body = answer.partition(b"\r\n\r\n")
    version, status, *_ = head.split()
    error = json.loads(body)["error"]
    return (
        version == b"HTTP/1.1"
        and 400 <= int(status) < 500
        and set(error) == {"message", "type", "param", "code"}
    )


@pytest.mark.promise("malformed-input")
@pytest.mark.parametrize("body", BROKEN_BODIES.values(), ids=BROKEN_BODIES.keys())
@pytest.mark.parametrize("path", ["/v1/embeddings", "/rerank"])
def test_a_broken_body_is_400(server: HttpServer, path: str, body: bytes) -> None:
    answer = server.client.post(path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert len(answer.content) < 2_000
    assert server.is_well()


def test_repeated_keys_and_nul_are_no_mistake(client: httpx.Client) -> None:
    for body in (b'{"input": 1, "input": "a"}', b'{"input": "a\\u0000b"}'):
        assert client.post("/embeddings", content=body).status_code == 200


@pytest.mark.promise("malformed-input")
@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.http")), ids=lambda path: path.stem)
@pytest.mark.parametrize("size", [None, 1], ids=["whole", "bytes"])
def test_what_is_not_http_is_refused_in_json(server: HttpServer, path: Path, size: int | None) -> None:
    data = path.read_bytes()
    with server.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(data), size or len(data)):
            send_all(connection, data[start : start + (size or len(data))])
        assert is_documented_refusal(receive_all(connection))
    assert server.is_well()


def test_the_corpus_is_there() -> None:
    assert len(list(CORPUS.glob("*.http"))) >= 10


def test_a_whole_megabyte_of_garbage_is_refused(server: HttpServer) -> None:
    assert is_documented_refusal(server.exchange(b"\x16\x03\x01" + b"\xff" * 1_000_000))
    assert server.is_well()


def test_an_answer_under_way_is_not_broken_into(server: HttpServer) -> None:
    body = b'{"input": "hello"}'
    good = b"POST /embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    answer = server.exchange(good + b"garbage\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["data"]


def test_requests_in_one_packet_are_answered_in_turn(server: HttpServer) -> None:
    body = b'{"input": "hello"}'
    request = b"POST /embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    answer = server.exchange(request * 5 + b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200 OK") == 6


@pytest.mark.promise("malformed-input", "departed-clients")
@pytest.mark.parametrize(
    "start", [b"", b"POST /v1/emb", EMBEDDINGS, EMBEDDINGS + b"content-length: 18\r\n\r\n{"]
)
def test_a_client_that_hangs_up_half_way_leaves_no_trace(server: HttpServer, start: bytes) -> None:
    for half in (True, False):
        with server.connect() as connection:
            connection.sendall(start)
            if half:
                connection.shutdown(socket.SHUT_WR)
                assert receive_all(connection) == b""
    assert server.is_well()


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    [
        "input",
        "model",
        "encoding_format",
        "dimensions",
        "prompt_name",
        "truncate",
        "query",
        "documents",
        "top_n",
    ]
)


@pytest.mark.promise("malformed-input")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(["/embeddings", "/rerank"]), body=st.dictionaries(FIELDS, JSON_VALUES, max_size=5)
)
def test_no_body_gives_a_5xx(server: HttpServer, path: str, body: object) -> None:
    assert server.client.post(path, content=json.dumps(body)).status_code in (200, 400, 404, 413)


HEADER_VALUES = st.binary(max_size=30).filter(lambda value: not set(value) & set(b"\r\n\x00"))


@pytest.mark.promise("malformed-input")
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(
        ["content-length", "transfer-encoding", "content-encoding", "content-type", "expect", "authorization",
         "x-request-id", "x-request-timeout-ms", "upgrade", "host", "connection", "cookie"]
    ),
    value=HEADER_VALUES,
)  # fmt: skip
def test_no_header_gives_a_5xx_or_a_hang(server: HttpServer, name: str, value: bytes) -> None:
    body = b'{"input": "hello"}'
    length = b"" if name in ("content-length", "transfer-encoding") else b"content-length: %d\r\n" % len(body)
    with server.connect(timeout_s=5) as connection:
        connection.sendall(EMBEDDINGS + length + name.encode() + b": " + value + b"\r\n\r\n" + body)
        connection.shutdown(socket.SHUT_WR)
        answer = receive_all(connection)
    assert answer == b"" or answer.split()[1][:1] in (b"2", b"4"), answer
