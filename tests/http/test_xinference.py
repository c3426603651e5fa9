"""Clients of Xinference choose a model by the fields of its lists."""

import pytest

from support.http_server import HttpServer

KINDS = {
    "model/embed": ("embedding", ["embed"]),
    "model/rerank": ("rerank", ["rerank"]),
    "model/classify": ("classify", ["classify"]),
}


@pytest.mark.parametrize("name", KINDS)
def test_models_have_a_type_and_abilities(every_task: HttpServer, name: str) -> None:
    one = every_task.client.get(f"/v1/models/{name}").json()
    assert (one["model_type"], one["model_ability"]) == KINDS[name]
    assert one["model_name"] == name
    assert (one["max_tokens"], one["context_length"]) == (256, 256)
    listed = {model["id"]: model for model in every_task.client.get("/v1/models").json()["data"]}
    assert listed[name] == {**one, "stats": listed[name]["stats"]}
    assert listed["model/embed"]["dimensions"] == 8
