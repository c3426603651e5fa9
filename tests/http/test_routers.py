"""An asymmetric model embeds queries and documents differently, on every route that states a purpose."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.http_server import serve_in_thread
from support.task_models import save_dense_router, save_sparse_router, save_task_model
from vecmill.directory_layouts import describe_model
from vecmill.models import locate_model

# The engine computes hashes for documents; queries are looked up in the model's own table.
TEXT = "the one in the end"


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Any]]:
    folder = tmp_path_factory.mktemp("models")
    oracle = save_sparse_router(folder / "sparse", save_task_model(folder / "masked", "BertForMaskedLM"))
    with serve_in_thread(models=[describe_model(locate_model(folder / "sparse"))]) as server:
        yield server.client, oracle


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Any]]:
    folder = tmp_path_factory.mktemp("models")
    oracle = save_dense_router(folder / "dense", save_task_model(folder / "bert", "BertModel"))
    with serve_in_thread(models=[describe_model(locate_model(folder / "dense"))]) as server:
        yield server.client, oracle


def post(client: httpx.Client, path: str, **body: Any) -> Any:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_fields_for_the_purpose_choose_the_route_of_sparse_embeddings(
    sparse: tuple[httpx.Client, Any],
) -> None:
    client, oracle = sparse
    row = oracle.encode_query([TEXT], convert_to_sparse_tensor=False)[0].tolist()
    expected = {index: pytest.approx(value, abs=1e-6) for index, value in enumerate(row) if value}
    assert expected
    for fields in ({"input_type": "query"}, {"input_type": "search_query"}, {"prompt_name": "query"}):
        (query,) = post(client, "/embed_sparse", inputs=TEXT, **fields)
        assert {each["index"]: each["value"] for each in query} == expected
    (plain,) = post(client, "/embed_sparse", inputs=TEXT)
    (document,) = post(client, "/embed_sparse", inputs=TEXT, input_type="document")
    assert plain == document
    assert {each["index"]: each["value"] for each in plain} != expected


def test_the_fields_for_the_purpose_choose_the_route_of_dense_embeddings(
    dense: tuple[httpx.Client, Any],
) -> None:
    client, oracle = dense
    expected = pytest.approx(oracle.encode_query([TEXT])[0].tolist(), abs=1e-6)
    for fields in ({"task": "retrieval.query"}, {"input_type": "query"}):
        (entry,) = post(client, "/v1/embeddings", input=TEXT, **fields)["data"]
        assert entry["embedding"] == expected
    (row,) = post(client, "/embed", inputs=TEXT, prompt_name="query")
    assert row == expected
    found = post(client, "/v2/embed", texts=[TEXT], input_type="search_query", embedding_types=["float"])
    assert found["embeddings"]["float"][0] == expected
    (entry,) = post(client, "/v1/embeddings", input=TEXT)["data"]
    assert entry["embedding"] != expected


def test_a_rerank_compares_a_query_with_documents(sparse: tuple[httpx.Client, Any]) -> None:
    client, _ = sparse
    (query,) = post(client, "/embed_sparse", inputs="the one", input_type="query")
    weights = {each["index"]: each["value"] for each in query}
    texts = [TEXT, "which of it"]
    rows = post(client, "/embed_sparse", inputs=texts, input_type="document")
    expected = [sum(weights.get(each["index"], 0) * each["value"] for each in row) for row in rows]
    found = {each["index"]: each["score"] for each in post(client, "/rerank", query="the one", texts=texts)}
    assert found == {index: pytest.approx(score, abs=1e-4) for index, score in enumerate(expected)}


def test_a_purpose_of_neither_route_is_refused_by_its_field(
    sparse: tuple[httpx.Client, Any], dense: tuple[httpx.Client, Any]
) -> None:
    for client, path, body in (
        (sparse[0], "/embed_sparse", {"inputs": TEXT}),
        (dense[0], "/v1/embeddings", {"input": TEXT}),
    ):
        answer = client.post(path, json={**body, "input_type": "clustering"})
        assert answer.status_code in (400, 422)
        assert "`input_type` is clustering" in answer.text


def test_without_a_default_route_the_server_asks_for_the_purpose(tmp_path: Path) -> None:
    masked = save_task_model(tmp_path / "masked", "BertForMaskedLM")
    save_sparse_router(tmp_path / "m", masked, default_route=None, allow_empty_key=False)
    with serve_in_thread(models=[describe_model(locate_model(tmp_path / "m"))]) as server:
        answer = server.client.post("/embed_sparse", json={"inputs": TEXT})
        assert answer.status_code in (400, 422)
        assert "`input_type` is missing" in answer.text
        post(server.client, "/embed_sparse", inputs=TEXT, input_type="document")
        post(server.client, "/rerank", query="the one", texts=[TEXT])
