"""Infinity's client: embeddings, models and health, with what it sends unasked."""

import httpx

from support.http_server import DIM, MODEL

UNSPECIFIED = "default/not-specified"


def test_what_it_sends_unasked_changes_nothing(client: httpx.Client) -> None:
    sent = {
        "input": ["hello"],
        "model": UNSPECIFIED,
        "modality": "text",
        "dimensions": 0,
        "encoding_format": "float",
    }
    answer = client.post("/embeddings", json=sent).json()
    assert (answer["object"], answer["model"]) == ("list", MODEL)
    assert len(answer["data"][0]["embedding"]) == DIM
    assert isinstance(answer["id"], str)
    assert isinstance(answer["created"], int)


def test_models_have_statistics_and_the_owner_that_it_knows(client: httpx.Client) -> None:
    document = client.get("/models").json()
    (model,) = document["data"]
    assert document["object"] == "list"
    assert model["owned_by"] == "infinity"
    assert (model["root"], model["parent"], model["object"]) == (MODEL, None, "model")
    assert set(model["stats"]) == {"queue_fraction", "queue_absolute", "results_pending", "batch_size"}
    assert model["stats"]["queue_fraction"] == 0.0
    assert isinstance(model["backend"], str)
    assert "embed" in model["capabilities"]


def test_its_health_is_a_time(client: httpx.Client) -> None:
    document = client.get("/health").json()
    assert list(document) == ["unix"]
    assert document["unix"] > 1.7e9
