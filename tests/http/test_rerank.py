"""POST /rerank sorts documents by their cosine with the query, in the shape that clients share."""

from typing import Any

import httpx
import numpy as np
import pytest

from support.http_server import MODEL, url


def rerank(client: httpx.Client, path: str = "/v1/rerank", **body: Any) -> dict[str, Any]:
    answer = client.post(url(client, path), json=body)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank", "/v2/rerank/", "//rerank"])
def test_every_spelling_of_the_path_answers(client: httpx.Client, path: str) -> None:
    document = rerank(client, path, query="a", documents=["b", "a"], model=MODEL)
    assert [result["index"] for result in document["results"]] == [1, 0]


def test_the_answer_has_every_field_that_clients_read(client: httpx.Client) -> None:
    document = rerank(client, query="a", documents=["b", {"text": "a"}], raw_scores=False, top_n=None)
    assert document["object"] == "rerank"
    assert document["id"].startswith("rerank-")
    assert document["model"] == MODEL
    assert document["usage"]["total_tokens"] == document["usage"]["prompt_tokens"] == 9
    assert document["meta"]["tokens"] == {"input_tokens": 9, "output_tokens": 0}
    assert all("document" not in result for result in document["results"])


def test_scores_are_the_cosines_of_the_rows(client: httpx.Client) -> None:
    texts = ["a query", "one", "two", "three"]
    rows = np.array(
        [entry["embedding"] for entry in client.post("/embeddings", json={"input": texts}).json()["data"]]
    )
    results = rerank(client, query=texts[0], documents=texts[1:])["results"]
    scores = {result["index"]: result["relevance_score"] for result in results}
    for index, row in enumerate(rows[1:]):
        assert scores[index] == pytest.approx(float(row @ rows[0]), abs=1e-6)
    assert sorted(scores.values(), reverse=True) == [result["relevance_score"] for result in results]


def test_ties_stay_in_input_order(client: httpx.Client) -> None:
    results = rerank(client, query="a", documents=["b", "a", "b", "a", "b"])["results"]
    order = [result["index"] for result in results]
    assert order.index(1) < order.index(3)
    assert order.index(0) < order.index(2) < order.index(4)


@pytest.mark.parametrize(("top_n", "count"), [(1, 1), (2, 2), (99, 3), (0, 3), (None, 3)])
def test_top_n_cuts_the_list(client: httpx.Client, top_n: int | None, count: int) -> None:
    assert len(rerank(client, query="a", documents=["a", "b", "c"], top_n=top_n)["results"]) == count


@pytest.mark.parametrize("flag", [True, "true"])
def test_documents_come_back_when_asked_for(client: httpx.Client, flag: bool | str) -> None:
    results = rerank(client, query="a", documents=["b", {"text": "a"}], return_documents=flag)["results"]
    assert [result["document"] for result in results] == [{"text": "a"}, {"text": "b"}]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"documents": ["a"]}, "query"),
        ({"query": None, "documents": ["a"]}, "query"),
        ({"query": ["a"], "documents": ["a"]}, "query"),
        ({"query": "a"}, "documents"),
        ({"query": "a", "documents": None}, "documents"),
        ({"query": "a", "documents": []}, "documents"),
        ({"query": "a", "documents": "a"}, "documents"),
        ({"query": "a", "documents": ["a", None]}, "documents[1]"),
        ({"query": "a", "documents": ["a", {"title": "b"}]}, "documents[1]"),
        ({"query": "a", "documents": ["a", [1, 2]]}, "documents[1]"),
        ({"query": "a", "documents": ["a"], "top_n": -1}, "top_n"),
        ({"query": "a", "documents": ["a"], "top_n": "two"}, "top_n"),
        ({"query": "a", "documents": ["a"], "top_n": 1.5}, "top_n"),
        ({"query": "a", "documents": ["a"], "return_documents": "perhaps"}, "return_documents"),
        ({"query": "a", "documents": ["a"], "model": {}}, "model"),
        ({"query": "a", "documents": ["a"] * 3_000}, "documents"),
    ],
)
def test_what_is_wrong_is_named(client: httpx.Client, body: dict[str, Any], field: str) -> None:
    answer = client.post("/rerank", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == field
