"""/rerank tells the clients of Voyage, Weaviate, vLLM and Infinity apart by their keys."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from support.http_server import MODEL, HttpServer, serve_in_thread
from vecmill_server.base.settings import RerankDocument, ServerSettings

DOCUMENTS = ["world", "hello"]


def post(client: httpx.Client, *, status: int = 200, **body: Any) -> Any:
    answer = client.post("/rerank", json={"query": "hello", **body})
    assert answer.status_code == status, answer.text
    return answer.json()


def test_voyage_reads_data(client: httpx.Client) -> None:
    answer = post(client, documents=DOCUMENTS, model=MODEL, top_k=None, truncation=True)
    assert set(answer) == {"object", "data", "model", "usage"}
    assert (answer["object"], answer["model"]) == ("list", MODEL)
    assert [set(entry) for entry in answer["data"]] == [{"index", "relevance_score"}] * 2
    assert [entry["index"] for entry in answer["data"]] == [1, 0]
    assert answer["usage"] == {"total_tokens": 9}
    best = post(client, documents=DOCUMENTS, top_k=1, return_documents=True)["data"]
    assert [entry["document"] for entry in best] == ["hello"]


def test_voyage_is_told_of_errors_in_detail(client: httpx.Client) -> None:
    refusal = post(client, status=400, documents=["hello " * 300], top_k=None, truncation=False)
    assert refusal["detail"].startswith("This model's maximum context length")
    assert isinstance(post(client, status=400, documents=[], truncation=True)["detail"], str)


def test_weaviate_reads_scores_in_input_order(client: httpx.Client) -> None:
    answer = post(client, documents=DOCUMENTS, property="")
    assert set(answer) == {"scores"}
    assert [entry["document"] for entry in answer["scores"]] == DOCUMENTS
    assert answer["scores"][1]["score"] == pytest.approx(1, abs=1e-6)
    refusal = post(client, status=400, documents=[], property="")
    assert set(refusal) == {"error"}
    assert isinstance(refusal["error"], str)


def test_null_texts_do_not_make_it_tei_s(client: httpx.Client) -> None:
    assert "results" in post(client, documents=DOCUMENTS, texts=None)


def test_infinity_finds_what_it_reads(client: httpx.Client) -> None:
    body: dict[str, Any] = {
        "documents": DOCUMENTS,
        "return_documents": False,
        "raw_scores": False,
        "model": "default/not-specified",
    }
    answer = post(client, **body)
    assert answer["object"] == "rerank"
    assert answer["usage"] == {"prompt_tokens": 9, "total_tokens": 9, "completion_tokens": 0}
    assert [set(result) for result in answer["results"]] == [{"index", "relevance_score"}] * 2


def test_vllm_may_send_what_only_it_knows(client: httpx.Client) -> None:
    body: dict[str, Any] = {
        "documents": [{"content": [{"type": "text", "text": "one two three four"}]}],
        "truncate_prompt_tokens": 4,
        "truncation_side": "right",
        "max_tokens_per_query": 10,
        "use_activation": None,
        "return_documents": True,
    }
    answer = post(client, **body)
    assert answer["results"][0]["document"]["text"] == "one two three four"
    assert answer["usage"]["total_tokens"] == 3 + 4


@pytest.fixture(scope="module")
def plain() -> Iterator[HttpServer]:
    settings = ServerSettings(lame_duck_s=0, rerank_document=RerankDocument.STRING)
    with serve_in_thread(settings) as server:
        yield server


def test_documents_are_strings_where_the_server_is_told_so(plain: HttpServer) -> None:
    documents = ["hello", {"text": "world"}]
    results = post(plain.client, documents=documents, return_documents="true", return_len="true")["results"]
    assert [result["document"] for result in results] == ["hello", "world"]


def test_documents_that_would_be_split_are_refused_instead_of_cut(client: httpx.Client) -> None:
    long = ["hello " * 300]
    assert post(client, documents=long)["results"]
    assert post(client, documents=long, max_chunks_per_doc=1)["results"]
    body: dict[str, Any] = {"max_chunks_per_doc": 1024, "overlap_tokens": 80}
    assert len(post(client, documents=DOCUMENTS, **body)["results"]) == 2
    error = post(client, status=400, documents=long, **body)["error"]
    assert error["code"] == "context_length_exceeded"


def test_jina_limits_both_sides(client: httpx.Client) -> None:
    cut = post(client, documents=["one two three"], max_doc_length=1, max_query_length=1)
    assert cut["usage"] == post(client, documents=["one"])["usage"]
