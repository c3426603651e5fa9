"""Ollama's clients: /api/embed, /api/embeddings, and what they ask before."""

import re
from typing import Any

import httpx
import numpy as np
import pytest

from support.described_models import describe_tasks, row_of
from support.http_server import DIM, MODEL, HttpServer, post, serve_in_thread
from vecmill.models import Task
from vecmill_server.base.settings import ServerSettings


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


def test_rows_have_length_1_on_the_newer_path_alone(every_task: HttpServer) -> None:
    """As Ollama's have, whatever the model. The one here does not normalise."""
    assert not describe_tasks()[Task.EMBED].normalize
    asked: dict[str, Any] = {"model": "model/embed"}
    (row,) = post(every_task.client, "/api/embed", input="hello", dimensions=4, **asked)["embeddings"]
    assert np.linalg.norm(row) == pytest.approx(1, rel=1e-6)
    older = post(every_task.client, "/api/embeddings", prompt="hello", **asked)["embedding"]
    np.testing.assert_allclose(older, row_of("hello", 8), rtol=1e-6)


@pytest.mark.parametrize("body", [{}, {"input": None}, {"input": []}])
def test_without_texts_there_are_no_rows(client: httpx.Client, body: dict[str, Any]) -> None:
    """It is how Ollama's clients have a model loaded before they need it."""
    answer = post(client, "/api/embed", model=MODEL, **body)
    assert (answer["embeddings"], answer["prompt_eval_count"]) == ([], 0)


def test_without_a_prompt_there_is_no_row(client: httpx.Client) -> None:
    assert post(client, "/api/embeddings", model=MODEL) == {"embedding": []}


def test_the_text_under_the_name_of_the_other_route_is_embedded(client: httpx.Client) -> None:
    newer = post(client, "/api/embed", model=MODEL, prompt="hello")
    np.testing.assert_allclose(newer["embeddings"], [row_of("hello", DIM)], rtol=1e-6)
    older = post(client, "/api/embeddings", model=MODEL, input="hello")
    np.testing.assert_allclose(older["embedding"], row_of("hello", DIM), rtol=1e-6)
    refusal = post(client, "/api/embed", status=400, prompt=3)
    assert refusal["error"].startswith("`prompt` must be a string")
    refusal = post(client, "/api/embeddings", status=400, input=["a", "b"])
    assert refusal["error"].startswith("`input` must be a string")


def test_ollama_lists_a_name_and_its_alias_with_the_tag_once() -> None:
    settings = ServerSettings(lame_duck_s=0, alias=(f"{MODEL}:latest", "other:v1.5"))
    with serve_in_thread(settings) as server:
        names = [model["name"] for model in server.client.get("/api/tags").json()["models"]]
    assert names == [f"{MODEL}:latest", "other:v1.5"]


def test_a_model_that_embeds_nothing_says_so_without_texts_too(every_task: HttpServer) -> None:
    for path in ("/api/embed", "/api/embeddings"):
        refusal = post(every_task.client, path, status=400, model="model/rerank")
        assert "it cannot embed texts" in refusal["error"]


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
        ("/api/embed", {"model": "x"}, 404, 'model "x" not found, try pulling it first'),
        ("/api/embed", {"input": 3}, 400, "`input` must be a string, or a list of strings"),
        ("/api/embeddings", {"prompt": ["a"]}, 400, "`prompt` must be a string"),
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
    assert (model["name"], model["model"]) == (f"{MODEL}:latest", f"{MODEL}:latest")
    assert type(model["size"]) is int
    assert re.fullmatch("[0-9a-f]{64}", model["digest"])
    assert model["modified_at"].endswith("+00:00")
    assert model["details"]["family"] == "bert"
    assert isinstance(client.get("/api/version").json()["version"], str)


@pytest.mark.parametrize("key", ["model", "name"])
def test_a_model_is_shown(every_task: HttpServer, key: str) -> None:
    named: dict[str, Any] = {key: "model/embed:latest"}
    answer = post(every_task.client, "/api/show", **named, verbose=False)
    assert answer["capabilities"] == ["embedding"]
    assert answer["details"]["family"] == answer["model_info"]["general.architecture"] == "bert"
    assert answer["model_info"]["bert.context_length"] == 256
    assert answer["model_info"]["general.context_length"] == 256
    assert answer["model_info"]["bert.embedding_length"] == 8
    assert post(every_task.client, "/api/show", model="model/rerank")["capabilities"] == ["rerank"]
    unknown: dict[str, Any] = {key: "nobody"}
    refusal = post(every_task.client, "/api/show", status=404, **unknown)
    assert refusal == {"error": 'model "nobody" not found, try pulling it first'}


@pytest.mark.parametrize("name", [MODEL, f"owner/{MODEL}:latest", None])
def test_a_served_model_is_there_already(client: httpx.Client, name: str | None) -> None:
    """Clients pull a model whose name they do not find in the list, as mem0 does."""
    assert post(client, "/api/pull", model=name, insecure=False, stream=False) == {"status": "success"}


def test_other_models_are_not_pulled(client: httpx.Client) -> None:
    refusal = post(client, "/api/pull", status=404, model="nobody", stream=True)
    assert refusal == {"error": f"The model `nobody` does not exist. This server has: {MODEL}."}


def test_loaded_models_are_listed(client: httpx.Client) -> None:
    (model,) = client.get("/api/ps").json()["models"]
    assert model["name"] == model["model"] == f"{MODEL}:latest"
    assert re.fullmatch("[0-9a-f]{64}", model["digest"])
    assert (model["context_length"], model["size_vram"]) == (256, 0)
    assert model["expires_at"].startswith("9999")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/api/chat", 404),
        ("POST", "/api/push", 404),
        ("GET", "/api/nothing", 404),
        ("GET", "/api/embed", 405),
    ],
)
def test_what_is_not_there_is_a_sentence(client: httpx.Client, method: str, path: str, status: int) -> None:
    answer = client.request(method, path, json={"model": MODEL})
    assert answer.status_code == status
    assert set(answer.json()) == {"error"}
    assert isinstance(answer.json()["error"], str)
    assert isinstance(client.request(method, path.replace("/api", "/v9"), json={}).json()["error"], dict)


@pytest.mark.parametrize(("path", "field"), [("/api/embed", "input"), ("/api/embeddings", "prompt")])
def test_num_ctx_cuts_texts(client: httpx.Client, path: str, field: str) -> None:
    def embeddings(text: str, **options: Any) -> Any:
        answer = client.post(path, json={field: text, "options": options, "keep_alive": "5m"}).json()
        return answer.get("embeddings") or answer["embedding"]

    assert embeddings("one two three four", num_ctx=4) == embeddings("one two")
    for unlimited in ({}, {"num_ctx": 0}, {"num_ctx": 100_000}, {"num_thread": 2, "temperature": 0.1}):
        assert embeddings("one two three four", **unlimited) == embeddings("one two three four")
    refusal = client.post(path, json={field: "a", "options": {"num_ctx": "many"}})
    assert refusal.status_code == 400
    assert "options.num_ctx" in refusal.json()["error"]


def test_an_error_before_the_body_is_read_is_a_sentence() -> None:
    """Ollama's npm package shows an object as "[object Object]"."""
    with serve_in_thread(ServerSettings(lame_duck_s=0, api_key=("a-key",), max_body_bytes=1024)) as server:
        refusal = post(server.client, "/api/embed", status=401, input="a")
        assert refusal == {"error": "An API key is required: Authorization: Bearer <key>."}
        large = {"input": "a" * 2000}
        answer = server.client.post("/api/embed", json=large, headers={"api-key": "a-key"})
        assert answer.status_code == 413
        assert set(answer.json()) == {"error"}
        assert isinstance(answer.json()["error"], str)
