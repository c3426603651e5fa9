"""`--alias '*'`: clients with a fixed model name are served; and aliases in the lists of models."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from support.described_models import describe_tasks
from support.http_server import MODEL, HttpServer, serve_in_thread
from vecmill.models import Task
from vecmill_server.base.settings import ServerSettings

COUNTER = "vecmill_unknown_model_names_total"

# The body of each route, with a name that no server of this kind has.
BODIES: dict[str, dict[str, Any]] = {
    "/v1/embeddings": {"input": "hello"},
    "/rerank": {"query": "hello", "documents": ["world"]},
    "/embed": {"inputs": "hello"},
    "/v2/embed": {"texts": ["hello"]},
    "/score": {"text_1": "hello", "text_2": "world"},
    "/pooling": {"input": "hello"},
    "/tokenize": {"prompt": "hello"},
    "/api/embed": {"input": "hello"},
    "/invocations": {"inputs": "hello"},
    "/vertex": {"instances": [{"inputs": "hello"}]},
}
# The request of LibreChat's web search, whose model cannot be set.
LIBRECHAT = {
    "model": "jina-reranker-v2-base-multilingual",
    "query": "hello",
    "top_n": 5,
    "documents": ["world", "hello"],
    "return_documents": True,
}


@pytest.fixture(scope="module")
def lenient() -> Iterator[HttpServer]:
    settings = ServerSettings(lame_duck_s=0, access_log=False, alias=("text-embedding-3-small", "*"))
    with serve_in_thread(settings) as server:
        yield server


@pytest.mark.parametrize("path", BODIES)
def test_any_name_is_served_and_counted(lenient: HttpServer, path: str) -> None:
    before = lenient.metric(COUNTER)
    for name in ("gpt-none", f"some/{path}"):
        answer = lenient.client.post(path, json={**BODIES[path], "model": name})
        assert answer.status_code == 200, answer.text
    for known in (MODEL, "text-embedding-3-small", None):
        assert lenient.client.post(path, json={**BODIES[path], "model": known}).status_code == 200
    assert lenient.metric(COUNTER) == before + 2


def test_a_name_in_the_path_may_be_any_too(lenient: HttpServer) -> None:
    path = "/openai/deployments/my-deployment/embeddings"
    assert lenient.client.post(path, json={"input": "hello"}).json()["model"] == MODEL
    assert lenient.client.get("/v1/models/gpt-none").json()["id"] == MODEL


def test_librechat_is_served(lenient: HttpServer, server: HttpServer) -> None:
    results = lenient.client.post("/v1/rerank", json=LIBRECHAT).json()["results"]
    assert [(entry["index"], entry["document"]["text"]) for entry in results] == [(1, "hello"), (0, "world")]
    assert results[0]["relevance_score"] == pytest.approx(1, abs=1e-6)
    assert server.client.post("/v1/rerank", json=LIBRECHAT).status_code == 404


def test_of_several_models_the_one_for_the_task_answers() -> None:
    settings = ServerSettings(lame_duck_s=0, access_log=False, alias=("*",))
    models = describe_tasks()
    with serve_in_thread(settings, models=[models[Task.EMBED], models[Task.RERANK]]) as server:
        named = {path: {**BODIES[path], "model": "gpt-none"} for path in ("/v1/embeddings", "/rerank")}
        answers = {path: server.client.post(path, json=body).json()["model"] for path, body in named.items()}
    assert answers == {"/v1/embeddings": "model/embed", "/rerank": "model/rerank"}


def test_an_unknown_name_is_logged_once(lenient: HttpServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "vecmill_server.service.unknown_words")
    for _ in range(3):
        lenient.client.post("/v1/embeddings", json={"input": "hello", "model": "logged-once"})
    assert caplog.text.count("logged-once") == 1


@pytest.mark.parametrize("path", ["/models", "/v1/models"])
def test_aliases_are_listed_as_models(lenient: HttpServer, path: str) -> None:
    listed = lenient.client.get(path).json()["data"]
    assert [(model["id"], model["root"]) for model in listed] == [
        (MODEL, MODEL),
        ("text-embedding-3-small", MODEL),
    ]
    names = dict.fromkeys(("id", "name", "model_name"), "text-embedding-3-small")
    assert listed[1] == {**listed[0], **names}
    assert lenient.client.get(f"{path}/text-embedding-3-small").json() == listed[1]


def test_ollama_lists_aliases_too(lenient: HttpServer) -> None:
    listed = lenient.client.get("/api/tags").json()["models"]
    names = [f"{MODEL}:latest", "text-embedding-3-small:latest"]
    assert [(model["name"], model["model"]) for model in listed] == list(zip(names, names, strict=True))
