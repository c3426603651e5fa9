"""A model with the heads of BGE-M3 answers the routes of all its outputs."""

from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from support.described_models import describe_tasks, describe_with_heads, token_ids
from support.http_server import serve_in_thread
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


def post(client: httpx.Client, path: str, *, status: int = 200, **body: Any) -> Any:
    answer = client.post(path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


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
