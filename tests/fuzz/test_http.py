"""No request over HTTP gets a 5xx, no answer or an undocumented answer, and none harms the server."""

import json
import random
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import httptools
import pytest

from fuzz.connection import STATUSES, has_whole_request
from fuzz.decoders import BODIES, FORM
from fuzz.json_values import write_body
from fuzz.mutations import mutate
from support.batches import request_line, upload
from support.described_models import describe_tasks
from support.http_server import QUIET, HttpServer, serve_in_thread
from vecmill_server.app import describe_routes
from vecmill_server.base.settings import ServerSettings, TokenIds

KEY, WRONG_KEY, WRONG_KEY_SHARE = "fuzz", "fuzzy", 0.05
# Servers whose settings open other paths through the readers of requests.
SETTINGS = {
    "plain": QUIET,
    "native ids": replace(QUIET, token_ids=TokenIds.NATIVE),
    "cl100k ids": replace(QUIET, token_ids=TokenIds.CL100K),
    "keys": replace(QUIET, api_key=(KEY,)),
}
PATHS = describe_routes(ServerSettings())["paths"]
POSTED = [path for path, methods in PATHS.items() if "post" in methods and "/files" not in path]
HEAD = (
    "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-length: {size}\r\n{rest}\r\n"
)
RAW = (
    b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 14\r\n"
    b'x-request-id: a\r\nx-request-timeout-ms: 20000\r\nexpect: 100-continue\r\n\r\n{"input": "a"}',
    b"POST /rerank HTTP/1.1\r\ntransfer-encoding: chunked\r\nhost: x\r\n\r\n"
    b'1a\r\n{"query":"q","texts":["a"]}\r\n0\r\nx-trailer: x\r\n\r\n',
    b"GET /v1/models HTTP/1.1\r\nhost: x\r\nauthorization: Bearer fuzz\r\ncookie: a=b\r\n\r\n",
    b"DELETE /v1/files/file-1?a=%20&b HTTP/1.1\r\nhost: x\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
    b"POST /v1/batches/batch_1/cancel HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n",
)
# Of each of the four servers: 100,000 cases in all at full size.
BODIES_SENT = [pytest.param(60, id="some"), pytest.param(16_000, id="all", marks=pytest.mark.full)]
BYTES_SENT = [pytest.param(60, id="some"), pytest.param(6_000, id="all", marks=pytest.mark.full)]
FORMS_SENT = [pytest.param(20, id="some"), pytest.param(3_000, id="all", marks=pytest.mark.full)]


@pytest.fixture(scope="module", params=SETTINGS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    settings = replace(SETTINGS[request.param], batch_dir=tmp_path_factory.mktemp("batches"))
    with serve_in_thread(settings, models=list(describe_tasks().values())) as server:
        server.client.headers["authorization"] = f"Bearer {KEY}"
        yield server


class Responses:
    """The responses on one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._bodies: list[bytes] = []
        self._body = b""
        self._statuses: list[int] = []
        self._parser = httptools.HttpResponseParser(self)

    def read_one(self) -> tuple[int, bytes] | None:
        """The next response; `None` at the end of the connection."""
        while not self._bodies:
            data = self._connection.recv(65_536)
            if not data:
                return None
            self._parser.feed_data(data)
        return self._statuses.pop(0), self._bodies.pop(0)

    @property
    def may_go_on(self) -> bool:
        """Whether the connection is kept for another request."""
        return bool(self._parser.should_keep_alive())

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status == 100:
            return
        self._statuses.append(status)
        self._bodies.append(self._body)
        self._body = b""


class Client:
    """A client that keeps its connection while the server does."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._connection: socket.socket | None = None

    def post(self, path: str, body: bytes, rest: str = "", key: str = KEY) -> tuple[int, bytes]:
        """Send a request, and return the status and the body."""
        head = HEAD.format(path=path, key=key, size=len(body), rest=rest).encode()
        if self._connection is None:
            self._connection = self._server.connect()
        self._connection.sendall(head + body)
        responses = Responses(self._connection)
        found = responses.read_one()
        assert found is not None, (path, body)
        if not responses.may_go_on:
            self.close()
        return found

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@pytest.fixture
def client(server: HttpServer) -> Iterator[Client]:
    client = Client(server)
    yield client
    client.close()


def assert_documented(path: str, status: int, body: bytes, sent: bytes) -> None:
    described = {int(code) for code in PATHS[path]["post"]["responses"]}
    assert status in described, (path, status, body, sent)
    assert status < 500, (path, status, body, sent)
    document = json.loads(body)
    assert status == 200 or has_error(document), (path, status, body, sent)


def has_error(document: Any) -> bool:
    """Whether a document is an error in one of the shapes of the dialects."""
    return isinstance(document, dict) and bool(document.keys() & {"error", "message", "detail", "object"})


@pytest.fixture
def batch(server: HttpServer) -> dict[str, Any]:
    """A batch of the server."""
    lines = [request_line("a", {"input": "a", "model": "model/embed"})]
    body = {"input_file_id": upload(server.client, lines), "endpoint": "/v1/embeddings"}
    found: dict[str, Any] = server.client.post("/v1/batches", json=body).json()
    return found


@pytest.mark.promise("malformed-input", "described-api")
@pytest.mark.parametrize("cases", BODIES_SENT)
def test_nearly_right_bodies_get_a_documented_answer(
    server: HttpServer, client: Client, batch: dict[str, Any], cases: int
) -> None:
    dice = random.Random(7 + cases)
    statuses = set()
    has_keys = bool(server.service.settings.api_key)
    of_batch = {name: batch[name] for name in ("input_file_id", "endpoint", "completion_window")}
    for number in range(cases):
        template = POSTED[number % len(POSTED)]
        path = template.replace("{deployment}", "model/embed").replace("{model}", "model/embed")
        path = path.replace("{batch_id}", dice.choice(["batch_1", batch["id"]]))
        body = write_body(of_batch if template == "/v1/batches" else dice.choice(BODIES), dice)
        key = WRONG_KEY if dice.random() < WRONG_KEY_SHARE else KEY
        status, answer = client.post(path, body, key=key)
        statuses.add(status)
        if has_keys and key == WRONG_KEY:
            assert status == 401, (path, status, answer)
            assert has_error(json.loads(answer))
            continue
        assert_documented(template, status, answer, body)
    assert {200, 400, *([401] if has_keys else [])} <= statuses
    assert server.is_well()


@pytest.mark.promise("malformed-input")
@pytest.mark.parametrize("cases", BYTES_SENT)
def test_any_bytes_get_an_answer_or_an_end(server: HttpServer, cases: int) -> None:
    dice = random.Random(8 + cases)
    answered = 0
    for _ in range(cases):
        data = mutate(dice.choice(RAW), dice)
        portion = 1 if dice.random() < 0.3 and len(data) < 1_000 else len(data) or 1
        statuses = []
        with server.connect() as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with suppress(OSError):  # the server has had enough
                for start in range(0, len(data), portion):
                    connection.sendall(data[start : start + portion])
                connection.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):
                responses = Responses(connection)
                while (found := responses.read_one()) is not None:
                    status, body = found
                    statuses.append(status)
                    assert status in STATUSES, (status, body, data)
                    assert status < 500, (status, body, data)
                    assert status < 400 or has_error(json.loads(body)), (status, body, data)
        assert statuses or not has_whole_request(data), data
        answered += bool(statuses)
    assert answered > cases / 2, "most requests were no requests"
    assert server.is_well()


@pytest.mark.promise("malformed-input")
@pytest.mark.parametrize("cases", FORMS_SENT)
def test_any_form_gets_a_documented_answer(server: HttpServer, client: Client, cases: int) -> None:
    dice = random.Random(9 + cases)
    for _ in range(cases):
        body = mutate(FORM[1:], dice)
        status, answer = client.post(
            "/v1/files", body, "content-type: multipart/form-data; boundary=edge\r\n"
        )
        assert_documented("/v1/files", status, answer, body)
        if status == 200:
            file_id = json.loads(answer)["id"]
            assert server.client.delete(f"/v1/files/{file_id}").status_code == 200
    assert server.is_well()
