"""The router finds the model that a request names, and hands the request and the response on; without Ray."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import pytest

from support.tiny_models import save_tiny_bert
from vecmill.values.task import Task
from vecmill_ray.serving import router
from vecmill_ray.serving.forwarding import (
    ForwardedRequest,
    ForwardedResponse,
    run_request,
)
from vecmill_ray.serving.model_plan import behind_router, read_plan
from vecmill_ray.serving.model_replica import BATCHES_OFF
from vecmill_ray.serving.router import merge, router_routes, router_service
from vecmill_server.app import create_app
from vecmill_server.app.origins import OriginRules
from vecmill_server.base.errors import ModelUnavailable

FILE = """
[server]
max_body_bytes = 2048
api_key = ["secret"]
cors_origin = ["https://app.example.com"]
url_prefix = "/here"

[[models]]
model = "{folder}/embedder"
alias = ["text-embedding-3-small"]

[[models]]
model = "{folder}/reranker"
"""
KEY = {"authorization": "Bearer secret"}


@dataclass
class Replicas:
    """Replicas of all models, which answer with their name."""

    requests: list[tuple[str, ForwardedRequest]] = field(default_factory=list)
    are_gone: bool = False
    never_answer: bool = False
    status: int = 207

    async def forward(self, name: str, request: ForwardedRequest) -> ForwardedResponse:
        if self.are_gone:
            raise ModelUnavailable(f"No replica of {name}.")
        if self.never_answer:
            await asyncio.get_running_loop().create_future()
        self.requests.append((name, request))
        entry = {"id": name}
        body = json.dumps({"name": name, "data": [entry, {"id": f"alias of {name}"}], "models": [entry]})
        return ForwardedResponse(self.status, [(b"x-replica", name.encode())], body.encode())


@pytest.fixture
def replicas() -> Replicas:
    return Replicas()


@pytest.fixture
async def client(tmp_path: Path, replicas: Replicas) -> AsyncIterator[httpx.AsyncClient]:
    for name in ("embedder", "reranker"):
        save_tiny_bert(tmp_path / name)
    path = tmp_path / "vecmill.toml"
    path.write_text(FILE.format(folder=tmp_path), encoding="utf-8")
    service, mills = router_service(read_plan(path, cores=1))
    mills["embedder"].tasks, mills["reranker"].tasks = (Task.EMBED,), (Task.RERANK,)
    service = replace(service, batches_off=BATCHES_OFF)
    app = create_app(service, routes=router_routes(service, replicas.forward))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://x/here", headers=KEY) as made:
        yield made


RERANKING = {"query": "a", "documents": ["b"]}


@pytest.mark.parametrize(
    ("path", "body", "model"),
    [
        ("/v1/embeddings", {"input": "a", "model": "embedder"}, "embedder"),
        ("/v1/embeddings", {"input": "a", "model": "text-embedding-3-small"}, "embedder"),
        ("/v1/embeddings", {"input": "a", "model": "EMBEDDER"}, "embedder"),
        ("/v1/embeddings", {"input": "a"}, "embedder"),
        ("/embed", {"inputs": "a"}, "embedder"),
        ("/rerank", {**RERANKING, "model": "owner/reranker"}, "reranker"),
        ("/rerank", RERANKING, "reranker"),
        ("/rerank", {"query": "a", "texts": ["b"]}, "reranker"),
        ("/v2/rerank", RERANKING, "reranker"),
        ("/openai/deployments/embedder/embeddings", {"input": "a", "model": "reranker"}, "embedder"),
        ("/api/embed", {"input": "a", "model": "embedder:latest"}, "embedder"),
    ],
)
async def test_a_request_goes_to_the_model_that_it_names(
    client: httpx.AsyncClient, replicas: Replicas, path: str, body: dict[str, object], model: str
) -> None:
    answer = await client.post(path, json=body)
    assert (answer.status_code, answer.headers["x-replica"]) == (207, model)
    ((name, request),) = replicas.requests
    assert (name, request.path) == (model, path)
    assert json.loads(request.body) == body


async def test_the_id_of_the_request_is_the_same_in_the_replica(
    client: httpx.AsyncClient, replicas: Replicas
) -> None:
    answer = await client.post("/v1/embeddings", json={"input": "a"})
    ((_, request),) = replicas.requests
    assert dict(request.headers)[b"x-request-id"].decode() == answer.headers["x-request-id"]


async def test_models_are_listed_before_aliases(client: httpx.AsyncClient) -> None:
    listed = (await client.get("/v1/models")).json()
    names = [entry["id"] for entry in listed["data"]]
    assert names == ["embedder", "reranker", "alias of embedder", "alias of reranker"]
    assert merge([[1, 3], [2], []]) == [1, 2, 3]


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("/info", "embedder"),
        ("/props", "embedder"),
        ("/models/info", "embedder"),
        ("/openai/v1/models/text-embedding-3-small", "embedder"),
        ("/pinecone/models/text-embedding-3-small", "embedder"),
        ("/v1/models/text-embedding-3-small", "embedder"),
        ("/v1/accuracy/text-embedding-3-small", "embedder"),
    ],
)
async def test_routes_that_describe_a_model_ask_it(client: httpx.AsyncClient, path: str, model: str) -> None:
    assert (await client.get(path)).json()["name"] == model


async def test_errors_before_a_model_are_those_of_the_server(
    client: httpx.AsyncClient, replicas: Replicas
) -> None:
    unknown = await client.post("/v1/embeddings", json={"input": "a", "model": "other"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
    large = await client.post("/v1/embeddings", json={"input": "a" * 4_000})
    assert (large.status_code, large.json()["error"]["code"]) == (413, "request_too_large")
    keyless = await client.post("/embed", json={"inputs": "a"}, headers={"authorization": ""})
    assert keyless.status_code == 401
    assert "disabled on Ray" in (await client.get("/v1/files")).text
    assert replicas.requests == []


async def test_a_model_without_a_replica_is_unavailable_in_the_words_of_the_api(
    client: httpx.AsyncClient, replicas: Replicas
) -> None:
    replicas.are_gone = True
    answer = await client.post("/v1/embeddings", json={"input": "a"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "service_unavailable")
    assert float(answer.headers["retry-after"]) > 0


async def test_a_client_gets_no_answer_after_its_time_limit(
    client: httpx.AsyncClient, replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router, "REPLICA_GRACE_S", 0.0)
    replicas.never_answer = True
    limit = {"x-request-timeout-ms": "1"}
    answer = await client.post("/v1/embeddings", json={"input": "a"}, headers=limit)
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "timeout")


async def test_a_list_of_models_is_the_error_of_a_replica_that_fails(
    client: httpx.AsyncClient, replicas: Replicas
) -> None:
    replicas.status = 403
    answer = await client.get("/v1/models")
    assert (answer.status_code, answer.headers["x-replica"]) == (403, "embedder")


async def test_a_replica_accepts_the_web_pages_that_the_router_accepts(
    client: httpx.AsyncClient, replicas: Replicas, tmp_path: Path
) -> None:
    headers = {
        "host": "api.example.org",
        "origin": "https://app.example.com",
        "sec-fetch-site": "cross-site",
        "user-agent": "Mozilla/5.0",
    }
    answer = await client.post("/v1/embeddings", json={"input": "a"}, headers=headers)
    assert answer.headers["access-control-allow-origin"] == "https://app.example.com"
    ((_, request),) = replicas.requests
    planned = behind_router(read_plan(tmp_path / "vecmill.toml", cores=1).models[0])
    OriginRules.of(planned.settings).check("POST", request.headers)


async def test_a_forwarded_request_runs_in_the_application_of_the_replica() -> None:
    async def app(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        message = await receive()
        headers = [(b"x-request-id", b"1"), (b"request-id", b"1"), (b"x-path", scope["path"].encode())]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": message["body"], "more_body": True})
        await send({"type": "http.response.body", "body": b"!"})

    request = ForwardedRequest("POST", "/embed", b"", [], None, b"body")
    assert await run_request(app, request) == ForwardedResponse(201, [(b"x-path", b"/embed")], b"body!")
