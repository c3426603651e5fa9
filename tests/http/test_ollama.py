"""Ollama's clients: /api/embed, /api/embeddings, and what they ask before."""

from typing import Any

import httpx
import numpy as np
import pytest

from support.described_models import row_of
from support.http_server import DIM, MODEL


def post(client: httpx.Client, path: str, *, status: int = 200, **body: Any) -> Any:
    answer = client.post(path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_texts_have_rows_and_times_in_nanoseconds(client: httpx.Client) -> None:
    name = f"{MODEL}:latest"
    answer = post(client, "/api/embed", model=name, input=["hello", "world"], keep_alive="5m", options={})
    assert set(answer) == {"model", "embeddings", "total_duration", "load_duration", "prompt_eval_count"}
    assert answer["model"] == name
    assert answer["prompt_eval_count"] == 6
    assert type(answer["load_duration"]) is type(answer["total_duration"]) is int
    assert 0 < answer["total_duration"] < 20e9
    expected = [row_of("hello", DIM), row_of("world", DIM)]
    np.testing.assert_allclose(answer["embeddings"], expected, rtol=1e-6)


def test_a_single_text_is_a_list_of_one_row(client: httpx.Client) -> None:
    assert np.shape(post(client, "/api/embed", input="hello")["embeddings"]) == (1, DIM)
    assert np.shape(post(client, "/api/embed", input="hello", dimensions=8)["embeddings"]) == (1, 8)


def test_the_older_path_gives_the_row_alone(client: httpx.Client) -> None:
    answer = post(client, "/api/embeddings", model=MODEL, prompt="hello")
    assert set(answer) == {"embedding"}
    np.testing.assert_allclose(answer["embedding"], row_of("hello", DIM), rtol=1e-6)


def test_long_texts_are_cut_unless_the_client_minds(client: httpx.Client) -> None:
    for truncate in (None, True):
        answer = post(client, "/api/embed", input="hello " * 300, truncate=truncate)
        assert answer["prompt_eval_count"] == 256
    refusal = post(client, "/api/embed", status=400, input="hello " * 300, truncate=False)
    assert "maximum context length" in refusal["error"]


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/api/embed", {"model": "x", "input": "a"}, 404, 'model "x" not found, try pulling it first'),
        ("/api/embeddings", {"model": "x", "prompt": "a"}, 404, 'model "x" not found, try pulling it first'),
        ("/api/embed", {"input": []}, 400, "`input` is an empty list"),
        ("/api/embed", {}, 400, "`input` is required"),
        ("/api/embeddings", {}, 400, "`prompt` is required: a string."),
    ],
)
def test_errors_are_a_sentence(
    client: httpx.Client, path: str, body: dict[str, Any], status: int, words: str
) -> None:
    document = post(client, path, status=status, **body)
    assert set(document) == {"error"}
    assert document["error"].startswith(words)


def test_tags_and_version_are_told(client: httpx.Client) -> None:
    (model,) = client.get("/api/tags").json()["models"]
    assert (model["name"], model["model"]) == (MODEL, MODEL)
    assert (type(model["size"]), type(model["digest"])) == (int, str)
    assert model["modified_at"].endswith("+00:00")
    assert model["details"]["family"] == "bert"
    assert isinstance(client.get("/api/version").json()["version"], str)
