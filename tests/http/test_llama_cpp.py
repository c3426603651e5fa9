"""Clients of llama.cpp's server get what its own binary answers."""

from typing import Any

import httpx
import numpy as np
import pytest

from support.described_models import describe_tasks, row_of
from support.http_server import DIM, MODEL, HttpServer, post, serve_in_thread
from vecmill.models import Task
from vecmill_server.base.settings import ServerSettings, TokenIds


def rows(*texts: str) -> Any:
    """The answer to these texts."""
    return [
        {"index": index, "embedding": [pytest.approx(row_of(text, DIM).tolist(), abs=1e-6)]}
        for index, text in enumerate(texts)
    ]


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("/embedding", "content"),
        ("/embedding", "input"),
        ("/embeddings", "content"),
        ("/v1/embeddings", "content"),
    ],
)
def test_each_text_has_a_list_of_rows(client: httpx.Client, path: str, key: str) -> None:
    given: Any
    for given, expected in (
        ("hello", rows("hello")),
        (["hello", "world"], rows("hello", "world")),
        ("", rows("")),
    ):
        body: dict[str, Any] = {key: given}
        assert post(client, path, **body) == expected


def test_with_input_the_openai_paths_stay_openai_s(client: httpx.Client) -> None:
    for path in ("/embeddings", "/v1/embeddings"):
        answer = post(client, path, input="hello", content="world")
        np.testing.assert_allclose(answer["data"][0]["embedding"], row_of("hello", DIM), rtol=1e-6)


@pytest.mark.parametrize("path", ["/embedding", "/v1/embeddings"])
def test_the_norm_is_chosen(every_task: HttpServer, path: str) -> None:
    """The model here does not normalise."""
    assert not describe_tasks()[Task.EMBED].normalize

    def length(**options: Any) -> float:
        answer = post(every_task.client, path, input="hello", dimensions=4, **options)
        row = answer[0]["embedding"][0] if path == "/embedding" else answer["data"][0]["embedding"]
        return float(np.linalg.norm(row))

    cut = float(np.linalg.norm(row_of("hello", 8)[:4]))
    assert length(embd_normalize=2) == pytest.approx(1, abs=1e-6)
    assert length(embd_normalize=-1) == pytest.approx(cut, abs=1e-6)
    assert length() == pytest.approx(1 if path == "/embedding" else cut, abs=1e-6)
    refusal = post(every_task.client, path, status=400, input="hello", embd_normalize=1)
    assert "embd_normalize" in refusal["error"]["message"]


def test_errors_have_the_status_as_a_number(client: httpx.Client) -> None:
    empty = post(client, "/embedding", status=400, content=[])["error"]
    assert (empty["code"], empty["type"]) == (400, "invalid_request_error")
    wrong = post(client, "/embedding", status=400, content="a", encoding_format="hex")["error"]
    assert (wrong["code"], wrong["type"]) == (400, "invalid_request_error")
    unknown = post(client, "/embedding", status=404, content="a", model="nobody")["error"]
    assert (unknown["code"], unknown["type"]) == (404, "not_found_error")


@pytest.mark.parametrize("path", ["/embedding", "/v1/embeddings"])
def test_what_is_too_long_is_refused_unless_it_may_be_cut(client: httpx.Client, path: str) -> None:
    long = "hello " * 600
    assert post(client, path, status=400, content=long) == {
        "error": {
            "code": 400,
            "message": "input (602 tokens) is larger than the max context size (256 tokens). skipping "
            "`content[0]`",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": 602,
            "n_ctx": 256,
        }
    }
    assert len(post(client, path, content=long, truncate=True)) == 1


def test_its_own_ids_are_taken_where_the_operator_says_so() -> None:
    with serve_in_thread(ServerSettings(token_ids=TokenIds.NATIVE, lame_duck_s=0)) as server:
        assert post(server.client, "/embedding", content=[101, 7592, 102]) == rows("hello")
        assert post(server.client, "/embedding", content=[[101, 7592, 102], "hello"]) == rows(
            "hello", "hello"
        )


def test_texts_are_tokenized_and_back(client: httpx.Client) -> None:
    assert post(client, "/tokenize", content="hello world") == {"tokens": [7592, 2088]}
    special = post(client, "/tokenize", content="hello world", add_special=True)
    assert special == {"tokens": [101, 7592, 2088, 102]}
    pieces = post(client, "/tokenize", content="hello world", add_special=True, with_pieces=True)
    assert pieces == {
        "tokens": [
            {"id": 101, "piece": "[CLS]"},
            {"id": 7592, "piece": "hello"},
            {"id": 2088, "piece": " world"},
            {"id": 102, "piece": "[SEP]"},
        ]
    }
    assert post(client, "/detokenize", tokens=[7592, 2088])["content"] == "hello world"


def test_reranking_is_rerank_with_either_key(client: httpx.Client) -> None:
    for path in ("/reranking", "/v1/reranking"):
        found = post(client, path, query="hello", documents=["world", "hello"])["results"]
        assert [result["index"] for result in found] == [1, 0]
        listed = post(client, path, query="hello", texts=["world", "hello"], top_n=1)
        assert listed == [{"index": 1, "score": pytest.approx(1, abs=1e-6)}]


def test_the_server_tells_what_clients_read(client: httpx.Client) -> None:
    assert client.get("/v1/health").json() == {"status": "ok"}
    props = client.get("/props").json()
    assert props["default_generation_settings"]["n_ctx"] == 256
    assert props["model_path"] == MODEL
    assert props["total_slots"] >= 1
    (listed,) = client.get("/v1/models").json()["models"]
    assert listed["model"] == MODEL
    assert listed["capabilities"] == ["embedding"]
