"""The requests of Ollama's command and of Weaviate's server, replayed from their source.

No registry has the programs. Of Ollama these are `api/client.go` and `cmd/cmd.go`; of Weaviate `startup.go`,
`ranker_meta.go` and `ranker.go` in `modules/reranker-transformers/clients`. Each test reads from an answer
what the Go code reads.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import httpx
import pytest

from support.http_server import MODEL, HttpServer, serve_in_thread
from vecmill_server.base.settings import ServerSettings

OLLAMA = {
    "Content-Type": "application/json",
    "Accept": "application/json",
    "User-Agent": "ollama/0.12.6 (amd64 linux) Go/go1.24.1",
    "Accept-Encoding": "gzip",
}
STREAM = {**OLLAMA, "Accept": "application/x-ndjson"}
GO = {"User-Agent": "Go-http-client/1.1", "Accept-Encoding": "gzip"}


@pytest.fixture(scope="module")
def guarded() -> Iterator[HttpServer]:
    with serve_in_thread(ServerSettings(lame_duck_s=0, api_key=("a-key",))) as server:
        yield server


def heartbeat(client: httpx.Client) -> None:
    """What the command sends before every other request."""
    answer = client.head("/", headers=OLLAMA)
    assert (answer.status_code, answer.content) == (200, b"")


def table_row(model: dict[str, Any]) -> tuple[str, str]:
    """The first columns of a table, which slices the digest: Go panics if it is shorter."""
    assert len(model["digest"]) >= 12
    return model["name"], model["digest"][:12]


def test_ollama_list(client: httpx.Client) -> None:
    heartbeat(client)
    (model,) = client.get("/api/tags", headers=OLLAMA).json()["models"]
    name, digest = table_row(model)
    assert name == f"{MODEL}:latest"
    assert re.fullmatch("[0-9a-f]{12}", digest)
    assert type(model["size"]) is int
    datetime.fromisoformat(model["modified_at"])


def test_ollama_ps(client: httpx.Client) -> None:
    heartbeat(client)
    (model,) = client.get("/api/ps", headers=OLLAMA).json()["models"]
    assert table_row(model)[0] == f"{MODEL}:latest"
    assert (type(model["size"]), type(model["size_vram"])) == (int, int)
    datetime.fromisoformat(model["expires_at"])


def test_ollama_show_pull_and_run(client: httpx.Client) -> None:
    """`ollama run` of an embedding model sends the text of the command line."""
    heartbeat(client)
    name = f"{MODEL}:latest"
    shown = client.post("/api/show", json={"model": name, "verbose": False}, headers=OLLAMA).json()
    assert shown["capabilities"] == ["embedding"]
    pulled = client.post("/api/pull", json={"name": name, "insecure": False}, headers=STREAM)
    assert pulled.json() == {"status": "success"}
    asked = {"model": name, "input": "hello", "options": {}}
    (row,) = client.post("/api/embed", json=asked, headers=OLLAMA).json()["embeddings"]
    assert len(row) == 384


@pytest.mark.parametrize("path", ["/api/generate", "/api/chat", "/api/create", "/api/copy", "/api/push"])
def test_what_ollama_s_command_cannot_do_here_says_what_it_can(client: httpx.Client, path: str) -> None:
    """It prints `error`."""
    answer = client.post(path, json={"model": MODEL, "keep_alive": 0}, headers=STREAM)
    assert answer.status_code == 404
    assert set(answer.json()) == {"error"}
    assert "Served of Ollama: POST /api/embed" in answer.json()["error"]


@pytest.mark.parametrize("has_keys", [False, True])
def test_weaviate_starts(client: httpx.Client, guarded: HttpServer, has_keys: bool) -> None:
    """Its module sends no key before it starts. What it learns of the server is no model's name."""
    asked = guarded.client if has_keys else client
    assert asked.get("/.well-known/ready", headers=GO).status_code <= 299
    meta = asked.get("/meta", headers=GO)
    assert meta.status_code == 200
    assert MODEL not in meta.text
    assert set(meta.json()) == {"server", "version"}


def test_weaviate_ranks(client: httpx.Client) -> None:
    asked = {"query": "hello", "documents": ["world", "hello"], "property": ""}
    answer = client.post("/rerank", json=asked, headers={**GO, "Content-Type": "application/json"}).json()
    assert [each["document"] for each in answer["scores"]] == asked["documents"]
    assert answer["scores"][1]["score"] > answer["scores"][0]["score"]
    refused = client.post("/rerank", json={**asked, "documents": []}, headers=GO)
    assert isinstance(refused.json()["error"], str)


def test_weaviate_waits_while_the_server_cannot_answer(client: httpx.Client) -> None:
    """A status above 299 makes it wait. Its own containers answer 204, as long as they are well."""
    assert client.get("/.well-known/live", headers=GO).status_code == 204
    assert client.get("/.well-known/ready", headers=GO).status_code == 204
