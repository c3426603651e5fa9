"""The rerank of Mixedbread, NVIDIA, DeepInfra, Pinecone, Fireworks and Alibaba: bodies, and answers."""

from typing import Any

import httpx
import numpy as np
import pytest

from support.described_models import row_of, token_ids
from support.http_server import DIM, MODEL, HttpServer, post
from vecmill.engines.fake import hash_row

DOCUMENTS = ["world", "hello"]


def score(document: str) -> Any:
    return pytest.approx(float(row_of("hello", DIM) @ row_of(document, DIM)), abs=1e-6)


@pytest.mark.parametrize("path", ["/v1/reranking", "/reranking"])
def test_mixedbread(client: httpx.Client, path: str) -> None:
    answer = post(client, path, model=MODEL, query="hello", input=DOCUMENTS, top_k=1, return_input=True)
    assert answer == {
        "usage": {"prompt_tokens": 9, "total_tokens": 9, "completion_tokens": 0},
        "model": MODEL,
        "data": [{"index": 1, "score": score("hello"), "input": "hello", "object": "rank_result"}],
        "object": "list",
        "top_k": 1,
        "return_input": True,
    }
    plain = post(client, path, query="hello", input=[{"title": "hello"}, "world"], rank_fields=["title"])
    assert [set(entry) for entry in plain["data"]] == [{"index", "score", "object"}] * 2
    assert [entry["index"] for entry in plain["data"]] == [0, 1]
    refusal = post(client, path, status=400, query="hello", input=[])
    assert refusal["error"]["param"] == "input"


@pytest.mark.parametrize("path", ["/ranking", "/v1/ranking"])
def test_nvidia(client: httpx.Client, path: str) -> None:
    passages = [{"text": text} for text in DOCUMENTS]
    answer = post(client, path, model=MODEL, query={"text": "hello"}, passages=passages, truncate="END")
    assert answer["rankings"] == [
        {"index": 1, "logit": score("hello")},
        {"index": 0, "logit": score("world")},
    ]
    assert answer["usage"]["total_tokens"] == 9
    refusal = post(client, path, status=400, query={"text": "hello"}, passages=[{"body": "a"}])
    assert refusal["error"]["param"] == "passages[0]"


def test_nvidia_s_images_are_refused(client: httpx.Client) -> None:
    pictured = {"text": "hello", "image": "data:image/png;base64,AA=="}
    bodies: dict[str, dict[str, Any]] = {
        "query": {"query": pictured, "passages": [{"text": "a"}]},
        "passages[1]": {"query": {"text": "a"}, "passages": [{"text": "a"}, pictured]},
    }
    for field, body in bodies.items():
        refusal = post(client, "/ranking", status=400, **body)
        assert refusal["error"]["param"] == field
        assert "image" in refusal["message"]
    post(client, "/ranking", query={"text": "a", "image": None}, passages=["a"])


def test_nvidia_s_scores_are_logits(every_task: HttpServer) -> None:
    answer = post(every_task.client, "/ranking", model="model/rerank", query="hello", passages=["world", "a"])
    ids = token_ids("hello")
    logits = [hash_row(np.array([*ids, *token_ids(text)[1:]]), 1)[0] for text in ("world", "a")]
    found = {entry["index"]: entry["logit"] for entry in answer["rankings"]}
    assert [found[0], found[1]] == pytest.approx(logits, abs=1e-6)


def test_deepinfra(client: httpx.Client) -> None:
    path = f"/v1/inference/{MODEL}"
    answer = post(client, path, queries=["hello"], documents=DOCUMENTS)
    assert answer["scores"] == [score("world"), score("hello")]
    assert answer["input_tokens"] == 9
    assert answer["inference_status"]["tokens_input"] == 9
    assert answer["inference_status"]["status"] == "succeeded"
    # LiteLLM repeats the query for each document.
    repeated = post(client, path, queries=["hello"] * 2, documents=DOCUMENTS)
    assert repeated["scores"] == answer["scores"]
    own = post(client, path, queries=["world", "hello"], documents=DOCUMENTS)
    assert own["scores"] == [pytest.approx(1, abs=1e-6)] * 2
    refusal = post(client, path, status=400, queries=["a", "b", "c"], documents=DOCUMENTS)
    assert "3 queries for 2 documents" in refusal["error"]["message"]
    post(client, "/v1/inference/nobody/nothing", status=404, queries=["a"], documents=["b"])


@pytest.mark.parametrize(
    ("path", "headers"), [("/rerank", {"X-Pinecone-API-Version": "2025-10"}), ("/pinecone/rerank", None)]
)
def test_pinecone(client: httpx.Client, path: str, headers: Any) -> None:
    documents = [{"id": str(index), "text": text} for index, text in enumerate(DOCUMENTS)]
    body: dict[str, Any] = {
        "model": MODEL,
        "query": "hello",
        "documents": documents,
        "top_n": 1,
        "return_documents": True,
        "rank_fields": ["text"],
        "parameters": {"truncate": "END"},
    }
    assert post(client, path, headers=headers, **body) == {
        "model": MODEL,
        "data": [{"index": 1, "score": score("hello"), "document": documents[1]}],
        "usage": {"rerank_units": 1},
    }
    bare = post(client, path, headers=headers, **{**body, "return_documents": False})
    assert [set(entry) for entry in bare["data"]] == [{"index", "score"}]


def test_pinecone_s_parameters_count(client: httpx.Client) -> None:
    long: dict[str, Any] = {"query": "hello", "documents": ["hello " * 300]}
    post(client, "/pinecone/rerank", **long)
    post(client, "/pinecone/rerank", status=400, **long, parameters={"truncate": "NONE"})
    post(client, "/pinecone/rerank", **long, truncate="END", parameters={"truncate": "NONE"})
    for parameters in (3, {"truncate": "SIDEWAYS"}):
        refusal = post(client, "/pinecone/rerank", status=400, **long, parameters=parameters)
        assert refusal["error"]["type"] == "invalid_request_error"


def test_without_its_header_the_answer_is_cohere_s(client: httpx.Client) -> None:
    assert "results" in post(client, "/rerank", query="hello", documents=DOCUMENTS, rank_fields=["text"])


def test_nvidia_s_hosted_models_are_named_by_the_body_and_else_by_the_path(client: httpx.Client) -> None:
    passages = [{"text": text} for text in DOCUMENTS]
    expected = [{"index": 1, "logit": score("hello")}, {"index": 0, "logit": score("world")}]
    # The names in NVIDIA's paths have no dots.
    mangled = "/v1/retrieval/nvidia/llama-3_2-rerank/reranking"
    answer = post(client, mangled, model=MODEL, query={"text": "hello"}, passages=passages)
    assert answer["rankings"] == expected
    named = post(client, f"/v1/retrieval/{MODEL}/reranking", query={"text": "hello"}, passages=passages)
    assert named["rankings"] == expected
    post(client, mangled, status=404, query={"text": "hello"}, passages=passages)


@pytest.mark.parametrize("prefix", ["", "fireworks/", "accounts/fireworks/models/"])
def test_fireworks(client: httpx.Client, prefix: str) -> None:
    answer = post(
        client, "/inference/v1/rerank", model=f"{prefix}{MODEL}", query="hello", documents=DOCUMENTS, top_n=1
    )
    assert answer == {
        "object": "list",
        "model": MODEL,
        "data": [{"index": 1, "relevance_score": score("hello"), "document": "hello"}],
        "usage": {"prompt_tokens": 9, "total_tokens": 9, "completion_tokens": 0},
    }


ALIBABA = "/api/v1/services/rerank/text-rerank/text-rerank"


def test_alibaba(client: httpx.Client) -> None:
    inner = {"query": "hello", "documents": DOCUMENTS}
    answer = post(
        client, ALIBABA, model=MODEL, input=inner, parameters={"top_n": 1, "return_documents": True}
    )
    assert answer["output"] == {
        "results": [{"index": 1, "relevance_score": score("hello"), "document": {"text": "hello"}}]
    }
    assert answer["usage"]["total_tokens"] == 9
    assert answer["request_id"]
    plain = post(client, ALIBABA, input=inner)
    assert [set(each) for each in plain["output"]["results"]] == [{"index", "relevance_score"}] * 2


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"input": {"query": "a", "documents": [3]}}, "input.documents[0]"),
        ({"input": {"documents": ["a"]}}, "input.query"),
        ({"input": {"query": "a", "documents": ["b"]}, "parameters": {"top_n": -1}}, "parameters.top_n"),
        ({"input": "a"}, "input"),
        ({}, "input"),
    ],
)
def test_alibaba_s_errors_name_the_place_of_the_field(
    client: httpx.Client, body: dict[str, Any], field: str
) -> None:
    refusal = post(client, ALIBABA, status=400, **body)
    assert refusal["error"]["param"] == field
    assert f"`{field}`" in refusal["error"]["message"]


@pytest.mark.parametrize("path", ["/compatible-api/v1/reranks", "/v1/reranks", "/reranks"])
def test_alibaba_s_compatible_path_answers_as_cohere_s(client: httpx.Client, path: str) -> None:
    body: dict[str, Any] = {"query": "hello", "documents": DOCUMENTS, "top_n": 1, "return_documents": True}
    assert post(client, path, **body)["results"] == post(client, "/rerank", **body)["results"]
