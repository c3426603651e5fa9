"""Azure's clients: the deployment in the path, the key in a header of its own."""

from collections.abc import Iterator

import pytest

from support.http_server import MODEL, HttpServer, serve_in_thread
from vecmill_server.base.settings import ServerSettings

KEY = "azure-key"


@pytest.fixture(scope="module")
def guarded() -> Iterator[HttpServer]:
    settings = ServerSettings(lame_duck_s=0, api_key=(KEY,), alias=("my-deployment",))
    with serve_in_thread(settings) as server:
        yield server


@pytest.mark.parametrize("deployment", [MODEL, "my-deployment", f"owner/{MODEL}", f"owner%2F{MODEL}"])
def test_the_deployment_is_the_model(guarded: HttpServer, deployment: str) -> None:
    path = f"/openai/deployments/{deployment}/embeddings?api-version=2024-02-01"
    answer = guarded.client.post(path, json={"input": "hello"}, headers={"api-key": KEY})
    assert answer.status_code == 200
    assert answer.json()["model"] == MODEL


def test_the_path_counts_whatever_the_body_says(guarded: HttpServer) -> None:
    path, headers = "/openai/deployments/nobody/embeddings", {"api-key": KEY}
    answer = guarded.client.post(path, json={"input": "hello", "model": MODEL}, headers=headers)
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"


def test_the_newer_path_has_the_model_in_the_body(guarded: HttpServer) -> None:
    body = {"input": "hello", "model": "my-deployment"}
    answer = guarded.client.post("/openai/v1/embeddings", json=body, headers={"api-key": KEY})
    assert answer.status_code == 200


def test_without_the_key_nothing_is_answered(guarded: HttpServer) -> None:
    answer = guarded.client.post("/openai/deployments/x/embeddings", json={"input": "hello"})
    assert answer.status_code == 401
