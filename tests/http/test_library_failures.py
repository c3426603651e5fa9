"""A library that panics in the middle of other requests costs only the request whose text it panicked on."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx
import numpy as np
import pytest

from support.batches import create_batch, ended, lines_of, request_line, rows_of
from support.failing_library import POISON, LibraryPanic, PanickingEngine, library_panics
from support.http_server import DIM, QUIET, HttpServer, serve_in_thread
from vecmill import Mill

POISON_ID = 5_000
SPOILED_TEXT, SPOILED_ID = "hello", 7592  # on whose token the engine panics
FILLER = "one more word " * 2_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    settings = replace(QUIET, batch_dir=tmp_path_factory.mktemp("batches"))
    engine = PanickingEngine(SPOILED_ID, dim=DIM)
    with library_panics(POISON_ID), serve_in_thread(settings, engine=engine) as server:
        yield server


def rows(answer: httpx.Response) -> np.ndarray:
    assert answer.status_code == 200, answer.text
    return np.array([entry["embedding"] for entry in answer.json()["data"]], np.float32)


def check_failed(answer: httpx.Response) -> None:
    assert answer.status_code == 500
    assert answer.headers["x-should-retry"] == "false"
    assert answer.json()["error"]["message"] == (
        "The tokenizer failed for this text. The server's log says more."
    )


@pytest.mark.promise("failure-contained")
@pytest.mark.parametrize("text", [POISON, FILLER + POISON], ids=["short", "long"])
def test_a_tokenizer_that_panics_fails_one_request_of_many(text: str, server: HttpServer) -> None:
    def post(inputs: list[str]) -> httpx.Response:
        return server.client.post("/v1/embeddings", json={"input": inputs, "truncate": False})

    inputs = [[f"text {number}", f"{FILLER[: 14 * number]} {number}"] for number in range(24)]
    expected = [rows(post(each)) for each in inputs]
    before = server.metric("vecmill_http_errors_total", reason="tokenization_failed")
    mixed = [[*each, text] if number % 6 == 0 else each for number, each in enumerate(inputs)]
    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(post, mixed))
    for number, answer in enumerate(answers):
        if number % 6 == 0:
            check_failed(answer)
        else:
            np.testing.assert_array_equal(rows(answer), expected[number])
    assert server.metric("vecmill_http_errors_total", reason="tokenization_failed") == before + 4
    assert server.is_well()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"prompt": POISON}),
        ("/detokenize", {"tokens": [1, POISON_ID]}),
        ("/v1/rerank", {"query": "a", "documents": ["b", POISON]}),
        ("/v1/embeddings", {"input": POISON, "chunking": {"mode": "chunks"}}),
    ],
)
def test_every_route_that_tokenises_answers(path: str, body: dict[str, object], server: HttpServer) -> None:
    answer = server.client.post(path, json=body)
    assert answer.status_code == 500
    assert "The tokenizer failed for this text" in answer.text
    assert server.is_well()


def test_an_engine_that_panics_fails_one_request_of_many(server: HttpServer) -> None:
    def post(text: object) -> httpx.Response:
        return server.client.post("/v1/embeddings", json={"input": text})

    texts = [f"text {number}" for number in range(24)]
    expected = [rows(post(text)) for text in texts]
    with ThreadPoolExecutor(25) as pool:
        failing = pool.submit(server.client.post, "/v1/embeddings", json={"input": ["a text", SPOILED_TEXT]})
        answers = list(pool.map(post, texts))
    assert failing.result().status_code == 500
    for answer, row in zip(answers, expected, strict=True):
        np.testing.assert_array_equal(rows(answer), row)


@pytest.mark.promise("failure-contained")
def test_a_line_of_a_batch_fails_alone(server: HttpServer) -> None:
    lines = [request_line(f"id {number}", {"input": f"text {number}"}) for number in range(20)]
    lines.insert(7, request_line("bad", {"input": POISON}))
    batch = ended(server.client, create_batch(server.client, lines))
    assert batch["status"] == "completed"
    assert batch["request_counts"] == {"total": 21, "completed": 20, "failed": 1}
    (failed,) = lines_of(server.client, batch["error_file_id"])
    assert (failed["custom_id"], failed["response"]["status_code"]) == ("bad", 500)
    found = lines_of(server.client, batch["output_file_id"])
    expected = rows(server.client.post("/v1/embeddings", json={"input": "text 19"}))
    np.testing.assert_array_equal(rows_of(found[-1]), expected)


def test_whatever_else_panics_has_a_response(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def panic(*_: object) -> None:
        raise LibraryPanic("private")

    monkeypatch.setattr(Mill, "answer", panic)
    answer = server.client.post("/v1/embeddings", json={"input": "hello"})
    assert answer.status_code == 500
    assert "private" not in answer.text
    monkeypatch.undo()
    assert server.is_well()
