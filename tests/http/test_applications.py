"""Applications embed, rerank, list models and show errors, with their requests as they send them."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx
import numpy as np
import pytest

from support.application_requests import (
    AIOHTTP,
    ALIASES,
    EMBEDDINGS,
    FETCH,
    GO,
    KEY,
    OPENAI_NPM,
    REQUESTS,
    RERANKER,
    RERANKS,
    TEXTS,
    Request,
)
from support.described_models import describe_tasks, row_of
from support.http_server import DIM, MODEL, HttpServer, serve_in_thread, url
from vecmill.directory_layouts import describe_model
from vecmill.models import Task, locate_model
from vecmill_server.base.settings import ServerSettings

SECRET = "a-key-that-nobody-sends"
WRONG_KEY: dict[str, str] = {"Authorization": "Bearer wrong"}
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def applied() -> Iterator[HttpServer]:
    """A server of an embedding model and a reranker, as an application needs both."""
    settings = ServerSettings(lame_duck_s=0, access_log=False, alias=ALIASES)
    models = [describe_model(locate_model()), describe_tasks()[Task.RERANK]]
    with serve_in_thread(settings, models=models) as server:
        yield server


@pytest.fixture(scope="module")
def locked() -> Iterator[HttpServer]:
    """A server that requires a key."""
    with serve_in_thread(ServerSettings(lame_duck_s=0, access_log=False, api_key=(SECRET,))) as server:
        yield server


def send(client: httpx.Client, request: Request) -> httpx.Response:
    body = json.dumps(request.body).encode()
    return client.post(url(client, request.path), content=body, headers={**request.headers, **JSON})


def get(client: httpx.Client, path: str, headers: Mapping[str, str] = REQUESTS) -> Any:
    answer = client.get(path, headers=dict(headers))
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_an_application_reads_the_embeddings(applied: HttpServer, name: str) -> None:
    request = EMBEDDINGS[name]
    answer = send(applied.client, request)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert "x-unknown-fields" not in answer.headers
    vectors = request.read(answer.json())
    assert len(vectors) in (1, 2)
    rows = [row_of(text, DIM) for text in TEXTS[: len(vectors)]]
    np.testing.assert_allclose(vectors, rows, rtol=1e-6)


@pytest.mark.parametrize("name", RERANKS)
def test_an_application_reads_the_scores(applied: HttpServer, name: str) -> None:
    request = RERANKS[name]
    answer = send(applied.client, request)
    assert answer.status_code == 200, answer.text
    assert "x-unknown-fields" not in answer.headers
    documents = request.body.get("documents") or request.body["texts"]
    plain = {"query": request.body["query"], "documents": documents, "model": "model/rerank"}
    expected = applied.client.post("/rerank", json=plain).json()["results"]
    scores = {entry["index"]: entry["relevance_score"] for entry in expected}
    assert scores[1] > scores[0]
    assert request.read(answer.json()) == scores


def test_open_webui_lists_models(applied: HttpServer) -> None:
    client = applied.client
    listed = [entry["id"] for entry in get(client, "/v1/models", {**AIOHTTP, **KEY})["data"]]
    assert listed[:2] == [MODEL, "model/rerank"]
    tagged = [f"{name}:latest" for name in listed]
    assert [entry["model"] for entry in get(client, "/api/tags", AIOHTTP)["models"]] == tagged
    assert isinstance(get(client, "/api/version", AIOHTTP)["version"], str)


def test_dify_checks_a_model_of_xinference(applied: HttpServer) -> None:
    """Its client asks first whether to send the key, then for the kind of the model."""
    client = applied.client
    assert get(client, "/v1/cluster/auth") == {"auth": False}
    embedder = get(client, f"/v1/models/{MODEL}")
    assert (embedder["model_type"], embedder["max_tokens"], embedder["context_length"]) == (
        "embedding",
        256,
        256,
    )
    assert get(client, f"/v1/models/{RERANKER}")["model_type"] == "rerank"


def test_dify_sends_its_key_to_xinference(locked: HttpServer) -> None:
    assert get(locked.client, "/v1/cluster/auth") == {"auth": True}
    without = locked.client.get(f"/v1/models/{MODEL}")
    assert without.status_code == 401
    assert isinstance(without.json()["detail"], str)
    with_key = {**REQUESTS, "Authorization": f"Bearer {SECRET}"}
    assert get(locked.client, f"/v1/models/{MODEL}", with_key)["model_type"] == "embedding"


def test_cohere_s_client_checks_its_key(applied: HttpServer, locked: HttpServer) -> None:
    assert applied.client.post("/v1/check-api-key").json() == {"valid": True}
    assert locked.client.post("/v1/check-api-key").status_code == 401
    right = locked.client.post("/v1/check-api-key", headers={"Authorization": f"Bearer {SECRET}"})
    assert (right.status_code, right.json()) == (200, {"valid": True})


@pytest.mark.parametrize(("task", "kind"), [(Task.EMBED, "embedding"), (Task.RERANK, "reranker")])
def test_dify_and_ragflow_read_the_info_of_tei(task: Task, kind: str) -> None:
    with serve_in_thread(models=[describe_tasks()[task]]) as server:
        info = get(server.client, "/info", {**REQUESTS, **JSON})
    assert next(iter(info["model_type"])) == kind
    assert (info["model_id"], info["max_input_length"]) == (f"model/{task}", 256)
    assert info["max_client_batch_size"] >= 1


@pytest.mark.parametrize("family", ["{family}", "general"])
def test_ragflow_lists_the_models_of_ollama_and_localai(applied: HttpServer, family: str) -> None:
    """RAGFlow takes the length from a key with the family of the model, or of `general` for LocalAI."""
    client = applied.client
    names = [model["name"] for model in get(client, "/api/tags")["models"]]
    found = {}
    for name in names:
        shown = client.post("/api/show", json={"model": name}, headers=dict(REQUESTS)).json()
        length = shown["model_info"][f"{family.format(**shown['details'])}.context_length"]
        found[name] = (shown["capabilities"], length)
    assert found[f"{MODEL}:latest"] == (["embedding"], 256)
    assert found[f"{RERANKER}:latest"] == (["rerank"], 256)


def test_ragflow_lists_the_models_of_openai_and_xinference(applied: HttpServer) -> None:
    listed = {entry["id"]: entry for entry in get(applied.client, "/v1/models", {**AIOHTTP, **KEY})["data"]}
    assert listed[MODEL]["max_model_len"] == 256
    assert [listed[name]["model_type"] for name in (MODEL, RERANKER)] == ["embedding", "rerank"]


@pytest.mark.parametrize("path", ["/v1/models", "/models"])
def test_ragflow_s_go_server_lists_models_with_a_body(applied: HttpServer, path: str) -> None:
    headers = {**GO, **KEY, **JSON}
    answer = applied.client.request("GET", path, content=b"{}", headers=headers)
    assert answer.status_code == 200
    assert answer.json()["data"][0]["id"] == MODEL
    assert get(applied.client, "/api/tags", headers)["models"][0]["name"] == f"{MODEL}:latest"


def test_anythingllm_finds_the_server_and_its_models(applied: HttpServer) -> None:
    client = applied.client
    assert get(client, "/", FETCH)["status"] == "ready"
    assert get(client, "/api/tags", FETCH)["models"][0]["name"] == f"{MODEL}:latest"
    assert get(client, "/v1/models", OPENAI_NPM)["data"][0]["id"] == MODEL


def test_continue_learns_about_the_model(applied: HttpServer) -> None:
    client = applied.client
    first = get(client, "/v1/models", FETCH)["data"][0]
    assert (first["id"], first["max_model_len"]) == (MODEL, 256)
    info = get(client, "/info", FETCH)
    assert (info["model_id"], type(info["max_client_batch_size"])) == (MODEL, int)
    shown = client.post("/api/show", json={"name": MODEL}, headers=dict(FETCH)).json()
    assert (shown["parameters"], shown["template"]) == ("", "")


def test_roo_code_finds_its_model(applied: HttpServer) -> None:
    """It looks for the name, for the name with the tag `latest`, and for the name of a tag."""
    names = [model["name"] for model in get(applied.client, "/api/tags", {**FETCH, **JSON})["models"]]
    assert f"{MODEL}:latest" in names


def openai_error(error: Any) -> str:
    """Dify's LocalAI reads the code too."""
    assert "code" in error["error"]
    return str(error["error"]["message"])


def detail(error: Any) -> str:
    return str(error["detail"])


def ollama_error(error: Any) -> str:
    assert isinstance(error["error"], str)
    return str(error["error"])


ERRORS: Mapping[str, Callable[[Any], str]] = {
    "Open WebUI, Ollama": ollama_error,
    "Dify, LocalAI": openai_error,
    "Dify, Jina": detail,
    "Dify, Xorbits Inference": detail,
    "AnythingLLM, Generic OpenAI and LiteLLM": openai_error,
    "Roo-Code, OpenAI Compatible": openai_error,
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_application_shows_why_a_key_is_refused(locked: HttpServer, name: str) -> None:
    request = EMBEDDINGS[name]
    answer = send(locked.client, Request(request.path, request.body, request.read, WRONG_KEY))
    assert answer.status_code == 401
    assert "Incorrect API key provided" in ERRORS[name](answer.json())


@pytest.mark.parametrize("name", [name for name in ERRORS if "model" in EMBEDDINGS[name].body])
def test_an_application_shows_that_a_model_is_unknown(applied: HttpServer, name: str) -> None:
    request = EMBEDDINGS[name]
    body = {**request.body, "model": "nobody"}
    answer = send(applied.client, Request(request.path, body, request.read, request.headers))
    assert answer.status_code == 404
    assert "nobody" in ERRORS[name](answer.json())


def test_dify_s_openai_plugin_learns_which_option_it_needs(applied: HttpServer) -> None:
    """It sends the token ids of OpenAI's tokenizer."""
    body = {"input": [[15339]], "model": MODEL, "encoding_format": "float"}
    answer = applied.client.post("/v1/embeddings", json=body, headers=dict(OPENAI_NPM))
    assert answer.status_code == 400
    assert "--token-ids cl100k" in answer.json()["error"]["message"]
