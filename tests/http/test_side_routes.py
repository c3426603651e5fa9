"""Embeddings and lists beside the main routes: Pinecone, Alibaba, DeepInfra, llamafile, Azure, NVIDIA."""

import socket
from typing import Any

import httpx
import numpy as np
import pytest

from support.described_models import describe_tasks, row_of
from support.http_server import DIM, MODEL, HttpServer, post, serve_in_thread
from vecmill.models import Task
from vecmill_server.base.settings import ServerSettings

TEXTS = ["hello", "world"]
ROWS = [row_of(text, DIM) for text in TEXTS]
PINECONE = {"X-Pinecone-API-Version": "2025-10"}


def test_pinecone_embeds(client: httpx.Client) -> None:
    body: dict[str, Any] = {"model": MODEL, "inputs": [{"text": text} for text in TEXTS]}
    parameters = {"input_type": "passage", "truncate": "END"}
    sent = client.post("/embed", json={**body, "parameters": parameters}, headers=PINECONE)
    assert sent.status_code == 200
    assert "x-unknown-fields" not in sent.headers
    answer = sent.json()
    assert (answer["model"], answer["vector_type"]) == (MODEL, "dense")
    assert answer["usage"] == {"total_tokens": 6}
    assert [each["vector_type"] for each in answer["data"]] == ["dense", "dense"]
    np.testing.assert_allclose([each["values"] for each in answer["data"]], ROWS, rtol=1e-6)
    cut = post(client, "/pinecone/embed", **body, parameters={"dimension": 8})
    assert np.shape([each["values"] for each in cut["data"]]) == (2, 8)


def test_other_clients_embed_at_the_same_path(client: httpx.Client) -> None:
    np.testing.assert_allclose(client.post("/embed", json={"inputs": TEXTS}).json(), ROWS, rtol=1e-6)


def test_pinecone_s_sparse_embeddings(every_task: HttpServer) -> None:
    body = {"model": f"model/{Task.SPARSE}", "inputs": [{"text": "hello"}]}
    answer = every_task.client.post("/embed", json=body, headers=PINECONE).json()
    plain = every_task.client.post("/embed_sparse", json={"model": body["model"], "inputs": "hello"}).json()
    (entry,) = answer["data"]
    assert (answer["vector_type"], entry["vector_type"]) == ("sparse", "sparse")
    assert entry["sparse_indices"] == [each["index"] for each in plain[0]]
    np.testing.assert_allclose(entry["sparse_values"], [each["value"] for each in plain[0]], rtol=1e-6)
    refusal = every_task.client.post("/embed", json={**body, "dimension": 8}, headers=PINECONE)
    assert refusal.json()["error"]["param"] == "dimension"


def test_pinecone_lists_models(every_task: HttpServer) -> None:
    def names(**asked: str) -> list[str]:
        answer = every_task.client.get("/models", params=asked, headers=PINECONE).json()
        return [model["model"] for model in answer["models"]]

    assert names() == [f"model/{task}" for task in describe_tasks()]
    assert names(type="rerank") == [f"model/{Task.RERANK}"]
    assert names(type="embed", vector_type="sparse") == [f"model/{Task.SPARSE}"]
    model = every_task.client.get(f"/models/model/{Task.EMBED}", headers=PINECONE).json()
    assert (model["type"], model["vector_type"], model["default_dimension"]) == ("embed", "dense", 8)
    assert every_task.client.get("/models/nobody", headers=PINECONE).status_code == 404
    assert "data" in every_task.client.get("/models").json()


ALIBABA = "/api/v1/services/embeddings/text-embedding/text-embedding"


def test_alibaba_embeds(client: httpx.Client) -> None:
    parameters = {"text_type": "document", "output_type": "dense"}
    sent = client.post(ALIBABA, json={"model": MODEL, "input": {"texts": TEXTS}, "parameters": parameters})
    answer = sent.json()
    assert "x-unknown-fields" not in sent.headers
    assert answer["usage"]["total_tokens"] == 6
    assert [each["text_index"] for each in answer["output"]["embeddings"]] == [0, 1]
    rows = [each["embedding"] for each in answer["output"]["embeddings"]]
    np.testing.assert_allclose(rows, ROWS, rtol=1e-6)
    cut = post(client, ALIBABA, input={"texts": TEXTS}, parameters={"dimension": 8})
    assert len(cut["output"]["embeddings"][0]["embedding"]) == 8


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "input"),
        ({"input": {}}, "input.texts"),
        ({"input": {"texts": ["a", 3]}}, "input.texts[1]"),
        ({"input": {"texts": ["a"]}, "parameters": {"output_type": "sparse"}}, "parameters.output_type"),
        ({"input": {"texts": ["a"]}, "parameters": {"instruct": "b"}}, "parameters.instruct"),
        ({"input": {"texts": ["a"]}, "parameters": {"dimension": 9999}}, "parameters.dimension"),
    ],
)
def test_alibaba_s_errors_name_the_field_in_its_part(
    client: httpx.Client, body: dict[str, Any], field: str
) -> None:
    refusal = post(client, ALIBABA, status=400, **body)
    assert refusal["error"]["param"] == field


def test_deepinfra_embeds(client: httpx.Client) -> None:
    answer = post(client, f"/v1/inference/{MODEL}", inputs=TEXTS, normalize=False)
    assert answer["input_tokens"] == 6
    assert answer["inference_status"]["status"] == "succeeded"
    np.testing.assert_allclose(answer["embeddings"], ROWS, rtol=1e-6)
    scores = post(client, f"/v1/inference/{MODEL}", queries=["hello"], documents=TEXTS)
    assert len(scores["scores"]) == 2


def test_deepinfra_adds_a_normalisation_and_takes_none_away(every_task: HttpServer) -> None:
    path = f"/v1/inference/model/{Task.EMBED}"
    plain = post(every_task.client, path, inputs=["hello"])["embeddings"]
    assert post(every_task.client, path, inputs=["hello"], normalize=False)["embeddings"] == plain
    (scaled,) = post(every_task.client, path, inputs=["hello"], normalize=True)["embeddings"]
    assert np.linalg.norm(scaled) == pytest.approx(1, rel=1e-6)


def test_llamafile_reads_objects(client: httpx.Client) -> None:
    """llama.cpp's clients send the same body, and read a list."""
    one = post(client, "/llamafile/embedding", content="hello")
    np.testing.assert_allclose(one["embedding"], ROWS[0], rtol=1e-6)
    several = post(client, "/llamafile/embedding", content=TEXTS)
    np.testing.assert_allclose([each["embedding"] for each in several["results"]], ROWS, rtol=1e-6)
    assert isinstance(post(client, "/embedding", content="hello"), list)


@pytest.mark.parametrize(
    "path",
    [
        "/models/embeddings?api-version=2024-05-01-preview",
        *("/openai/v1/embeddings", "/compatible-mode/v1/embeddings", "/v1/openai/embeddings"),
        "/inference/v1/embeddings",
    ],
)
def test_openai_s_embeddings_are_at_the_paths_of_others(client: httpx.Client, path: str) -> None:
    answer = post(client, path, model=MODEL, input=TEXTS)
    np.testing.assert_allclose([each["embedding"] for each in answer["data"]], ROWS, rtol=1e-6)


@pytest.mark.parametrize(
    "path", ["/openai/models", "/openai/v1/models", "/v1/openai/models", "/compatible-mode/v1/models"]
)
def test_models_are_listed_at_the_paths_of_others(client: httpx.Client, path: str) -> None:
    assert client.get(path).json()["data"] == client.get("/v1/models").json()["data"]
    assert client.get(f"{path}/{MODEL}").json()["id"] == MODEL


def test_azure_s_client_learns_what_the_model_is(client: httpx.Client) -> None:
    info = client.get("/models/info?api-version=2024-05-01-preview").json()
    assert info == {"model_name": MODEL, "model_type": "embeddings", "model_provider_name": "vecmill"}


@pytest.mark.parametrize("path", ["/openai/v1/rerank", "/providers/cohere/v2/rerank"])
def test_azure_s_rerank(client: httpx.Client, path: str) -> None:
    answer = post(client, path, query="hello", documents=["world", "hello"], top_n=1)
    assert [each["index"] for each in answer["results"]] == [1]


RANKING: dict[str, Any] = {"query": "a", "documents": ["a", "b", "c"]}
RANKS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("/rerank", "/v1/rerank", "/v2/rerank", "/voyage/v1/rerank", "/api/rerank"), RANKING),
    **dict.fromkeys(("/pinecone/rerank", "/inference/v1/rerank", "/v1/reranks", "/invocations"), RANKING),
    "/v1/reranking": {"query": "a", "input": ["a", "b", "c"]},
    "/embed_of_tei": {"query": "a", "texts": ["a", "b", "c"]},
    "/v1/ranking": {"query": "a", "passages": ["a", "b", "c"]},
    f"/v1/retrieval/{MODEL}/reranking": {"query": "a", "passages": ["a", "b", "c"]},
}


# All of them mean two results.
LIMITS: list[dict[str, Any]] = [{"top_n": 2}, {"top_k": 2}, {"top_n": 2, "top_k": 3}, {"top_k": "2"}]


@pytest.mark.parametrize("path", RANKS)
def test_a_limit_counts_under_either_name(client: httpx.Client, path: str) -> None:
    for limits in LIMITS:
        sent = client.post(path.replace("/embed_of_tei", "/rerank"), json={**RANKS[path], **limits})
        assert sent.status_code == 200, sent.text
        assert "x-unknown-fields" not in sent.headers
        answer = sent.json()
        found = (
            answer
            if isinstance(answer, list)
            else next(answer[name] for name in ("results", "data", "rankings") if name in answer)
        )
        assert len(found) == 2, limits


@pytest.mark.parametrize("name", ["top_n", "top_k"])
def test_a_limit_in_the_parameters_counts(client: httpx.Client, name: str) -> None:
    path = "/api/v1/services/rerank/text-rerank/text-rerank"
    answer = post(client, path, input=RANKING, parameters={name: 2})
    assert len(answer["output"]["results"]) == 2
    answer = post(client, "/pinecone/rerank", **RANKING, parameters={name: 2})
    assert len(answer["data"]) == 2


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/rerank", {"query": "a", "documents": ["a"], "property": "", "top_n": 1}),
        (f"/v1/inference/{MODEL}", {"queries": ["a"], "documents": ["a"], "top_n": 1}),
        (f"/v1/inference/{MODEL}", {"queries": ["a"], "documents": ["a"], "top_k": 1}),
    ],
)
def test_a_limit_that_has_no_meaning_is_refused(
    client: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    assert "a score for each document" in client.post(path, json=body).text
    for none in (0, None):
        unlimited = {name: none if name in ("top_n", "top_k") else value for name, value in body.items()}
        assert client.post(path, json=unlimited).status_code == 200


@pytest.mark.parametrize("path", ["/v2/v2/rerank", "/v2/v1/rerank", "/v1/v2/rerank"])
def test_versions_may_be_doubled_and_mixed(client: httpx.Client, path: str) -> None:
    assert client.post(path, json={"query": "a", "documents": ["b"]}).status_code == 200


PROBES = ["/.well-known/ready", "/.well-known/live", "/v1/health/ready", "/v1/health/live", "/meta"]


def test_probes_of_other_servers_need_no_key() -> None:
    with serve_in_thread(ServerSettings(lame_duck_s=0, api_key=("a-key",))) as server:
        for path in PROBES:
            done = 204 if "well-known" in path else 200
            assert server.client.get(path).status_code == server.client.head(path).status_code == done
            assert server.client.post(path).status_code == 401
        for path in ("/openai/models", "/models/info", "/pinecone/models", "/version", "/models"):
            assert server.client.get(path, headers=PINECONE).status_code == 401
        assert server.client.options("/").status_code == 200
        assert server.client.options("/v1/models").status_code == 401


@pytest.mark.parametrize("request_line", ["OPTIONS / HTTP/1.0", "HEAD / HTTP/1.0", "OPTIONS / HTTP/1.1"])
def test_load_balancers_may_ask_at_the_root(server: HttpServer, request_line: str) -> None:
    """HAProxy's `option httpchk` sends OPTIONS with HTTP/1.0, and no `Host`."""
    host = "" if request_line.endswith("1.0") else "Host: localhost\r\nConnection: close\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(f"{request_line}\r\n{host}\r\n".encode())
        answer = connection.makefile("rb").read()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert body == b""
