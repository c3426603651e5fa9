"""A model with the heads of BGE-M3 answers the routes of all its outputs."""

from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from support.described_models import describe_tasks, describe_with_heads, token_ids
from support.http_server import HttpServer, post, serve_in_thread
from vecmill.engines.fake import hash_row, hash_sparse_row, hash_token_rows
from vecmill.models import Task

DIM = 8
TEXT, OTHER = "hello world", "hello"


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with serve_in_thread(models=[describe_with_heads()]) as server:
        yield server.client


@pytest.fixture(scope="module")
def several() -> Iterator[httpx.Client]:
    models = describe_tasks()
    with serve_in_thread(models=[models[Task.RERANK], models[Task.EMBED], describe_with_heads()]) as server:
        yield server.client


def weights_of(text: str) -> dict[int, float]:
    """What the fake engine gives, without [CLS], [PAD] and [UNK]."""
    ids = token_ids(text)
    found = hash_sparse_row(ids, 1 + int(ids.max()))
    pairs = zip(found.columns.tolist(), found.values.tolist(), strict=True)
    return {column: value for column, value in pairs if column not in (100, 101, 0)}


def vectors_of(text: str) -> Any:
    return pytest.approx(hash_token_rows(token_ids(text), DIM)[1:], abs=1e-6)


def test_each_output_has_its_route(client: httpx.Client) -> None:
    (entry,) = post(client, "/v1/embeddings", input=TEXT)["data"]
    np.testing.assert_allclose(entry["embedding"], hash_row(token_ids(TEXT), DIM), atol=1e-6)
    (sparse,) = post(client, "/embed_sparse", inputs=TEXT)
    assert {each["index"]: each["value"] for each in sparse} == pytest.approx(weights_of(TEXT), abs=1e-6)
    assert 101 in token_ids(TEXT)
    (vectors,) = post(client, "/embed_all", inputs=TEXT)
    assert np.array(vectors) == vectors_of(TEXT)
    (pooled,) = post(client, "/pooling", input=TEXT, task="token_embed")["data"]
    assert np.array(pooled["data"]) == vectors_of(TEXT)


def test_one_request_has_the_outputs_that_it_asks_for(client: httpx.Client) -> None:
    found = post(client, "/encode", sentences=[TEXT, OTHER], return_sparse=True, return_colbert_vecs=True)
    assert found["usage"]["total_tokens"] == sum(len(token_ids(text)) for text in (TEXT, OTHER))
    for index, text in enumerate((TEXT, OTHER)):
        np.testing.assert_allclose(found["dense_vecs"][index], hash_row(token_ids(text), DIM), atol=1e-6)
        weights = {str(token_id): weight for token_id, weight in weights_of(text).items()}
        assert found["lexical_weights"][index] == pytest.approx(weights, abs=1e-6)
        assert np.array(found["colbert_vecs"][index]) == vectors_of(text)
    plain = post(client, "/encode", sentences=TEXT)
    assert (plain["lexical_weights"], plain["colbert_vecs"]) == (None, None)
    assert len(plain["dense_vecs"]) == 1


@pytest.mark.parametrize(
    ("task", "field", "asked"),
    [
        (Task.EMBED, "dense_vecs", {}),
        (Task.SPARSE, "lexical_weights", {"return_dense": False, "return_sparse": True}),
        (Task.MULTI_VECTOR, "colbert_vecs", {"return_dense": False, "return_colbert_vecs": True}),
    ],
)
def test_a_model_of_one_output_gives_it(
    every_task: HttpServer, task: Task, field: str, asked: dict[str, bool]
) -> None:
    found = post(every_task.client, "/encode", sentences=TEXT, model=f"model/{task}", **asked)
    assert {name for name, value in found.items() if value is not None} == {field, "usage"}
    ids = token_ids(TEXT)
    match task:
        case Task.EMBED:
            np.testing.assert_allclose(found[field], [hash_row(ids, 8)], atol=1e-6)
        case Task.SPARSE:
            assert len(found[field][0]) == len(np.unique(ids))
        case _:
            np.testing.assert_allclose(found[field][0], hash_token_rows(ids, 4), atol=1e-6)


def test_one_request_takes_one_call(client: httpx.Client) -> None:
    def count() -> float:
        lines = client.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("vecmill_batch_texts_count"))

    before = count()
    post(client, "/encode", sentences="a text of its own", return_sparse=True, return_colbert_vecs=True)
    assert count() == before + 1


def test_a_request_for_no_output_is_refused(client: httpx.Client, several: httpx.Client) -> None:
    error = post(client, "/encode", status=400, sentences=TEXT, return_dense=False)["error"]
    assert error["param"] == "return_dense"
    body = {"sentences": TEXT, "model": "model/embed", "return_sparse": True}
    error = post(several, "/encode", status=400, **body)["error"]
    assert "it cannot give sparse embeddings" in error["message"]


def scores_of(client: httpx.Client, **body: Any) -> list[float]:
    results = post(client, "/rerank", query=TEXT, documents=[TEXT, OTHER], **body)["results"]
    return [each["relevance_score"] for each in sorted(results, key=lambda each: each["index"])]


def test_a_rerank_weights_three_scores(client: httpx.Client) -> None:
    single = [scores_of(client, weights=[float(place == one) for one in range(3)]) for place in range(3)]
    assert single[0][0] == pytest.approx(1, abs=1e-6)
    assert single[2][0] == pytest.approx(1, abs=1e-6)
    assert single[1][0] == pytest.approx(sum(weight**2 for weight in weights_of(TEXT).values()), abs=1e-6)
    for weights in (None, [1, 1, 2], [0.5, 0, 0.5]):
        shares = np.array([0.4, 0.2, 0.4] if weights is None else weights)
        expected = shares / shares.sum() @ np.array(single)
        found = scores_of(client) if weights is None else scores_of(client, weights=weights)
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(
    "weights", [1, [1], ["a", 1, 1], [1, 1, -1], [True, 1, 1], [0, 0, 0], [10**30, 1, 1]]
)
def test_other_weights_are_refused(client: httpx.Client, weights: object) -> None:
    error = post(client, "/rerank", status=400, query="a", documents=["b"], weights=weights)["error"]
    assert error["param"] == "weights"


def test_models_without_heads_refuse_weights(several: httpx.Client) -> None:
    for model in ("model/rerank", "model/embed"):
        error = post(
            several, "/rerank", status=400, query="a", documents=["b"], weights=[1, 1, 1], model=model
        )["error"]
        assert "needs the heads of BGE-M3" in error["message"]


def test_without_a_name_the_model_is_one_that_has_the_output(several: httpx.Client) -> None:
    assert post(several, "/v1/embeddings", input=TEXT)["model"] == "model/embed"
    (sparse,) = post(several, "/embed_sparse", inputs=TEXT)
    assert {each["index"] for each in sparse} == weights_of(TEXT).keys()
    (vectors,) = post(several, "/embed_all", inputs=TEXT)
    assert np.array(vectors) == vectors_of(TEXT)


def test_what_it_does_not_do_is_named(client: httpx.Client) -> None:
    error = post(client, "/classify", status=400, input=TEXT)["error"]
    assert "gives dense, sparse and multi-vector embeddings" in error["message"]


def test_its_abilities_are_listed(client: httpx.Client) -> None:
    (model,) = client.get("/v1/models").json()["data"]
    assert model["capabilities"] == ["embed", "rerank", "embed_sparse", "embed_all"]
