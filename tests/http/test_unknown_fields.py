"""A field that nobody knows has no effect, and the response names it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.batches import create_batch, ended, request_line
from support.http_server import MODEL, QUIET, HttpServer, serve_in_thread
from vecmill_server.base.settings import ServerSettings
from vecmill_server.dialects.dialect import InferenceBody
from vecmill_server.dialects.dialect_routes import ROUTES

HEADER = "x-unknown-fields"
BODIES = dict.fromkeys(body for route in ROUTES for body in route.bodies)
PAIR = {"query": "a", "documents": ["b"]}


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("/v1/embeddings", {"input": "a", "encoding_formt": "base64"}, "encoding_formt"),
        ("/v1/embeddings", {"input": "a", "foo": None, "b r": 1, "bar": 2}, "foo, bar, +1"),
        (f"/openai/deployments/{MODEL}/embeddings", {"input": "a", "foo": 1}, "foo"),
        ("/rerank", {**PAIR, "topn": 1}, "topn"),
        ("/rerank", {**PAIR, "top_k": 1, "topn": 1}, "topn"),  # Voyage's
        ("/embed", {"inputs": "a", "normalise": True}, "normalise"),
        (
            "/embed",
            {"inputs": "a", "parameters": {"normalise": 1, "normalize": True}},
            "parameters.normalise",
        ),
        ("/embed", {"inputs": "a", "parameters": {"inputs": "b"}}, "parameters.inputs"),
        ("/", {"inputs": {"query": "a", "texts": ["b"], "x": 1}, "y": 1}, "y, inputs.x"),
        (
            "/vertex",
            {"instances": [{"inputs": "a", "x": 1}, {"inputs": "b", "x": 2}], "parameters": {"y": 1}, "z": 1},
            "z, parameters.y, instances.x",
        ),
        ("/pooling", {"input": "a", "encoding_format": "float", "x": 1}, "x"),
        ("/tokenize", {"prompt": "a", "with_piecs": True}, "with_piecs"),
        ("/api/embed", {"input": "a", "truncat": True}, "truncat"),
        ("/v2/embed", {"texts": ["a"], "input_typ": "query"}, "input_typ"),
        ("/pinecone/rerank", {**PAIR, "parameters": {"truncate": "END", "x": 1}, "y": 1}, "y, parameters.x"),
        (
            "/api/v1/services/rerank/text-rerank/text-rerank",
            {"input": {**PAIR, "x": 1}, "parameters": {"top_n": 1, "y": 1}, "z": 1},
            "z, input.x, parameters.y",
        ),
        (f"/v1/retrieval/{MODEL}/reranking", {"query": "a", "passages": ["b"], "x": 1}, "x"),
        ("/api/show", {"verbos": True}, "verbos"),
    ],
)
def test_unknown_fields_are_named_and_counted(
    server: HttpServer, path: str, body: dict[str, Any], named: str
) -> None:
    before = counted(server)
    answer = server.client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert answer.headers[HEADER] == named
    numbers = [int(name) if name.startswith("+") else 1 for name in named.split(", ")]
    assert counted(server) == before + sum(numbers)


def counted(server: HttpServer) -> float:
    families = server.service.metrics.registry.collect()
    return sum(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == "vecmill_unknown_fields_total"
    )


def test_an_error_names_them_too(client: httpx.Client) -> None:
    answer = client.post("/v1/embeddings", json={"inputs": "a"})
    assert (answer.status_code, answer.headers[HEADER]) == (400, "inputs")
    large = {"inputt": ["many words " * 10] * 2_000}
    assert client.post("/embed", json=large).headers[HEADER] == "inputt"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            "/v1/embeddings",
            {"input": "a", "user": "me", "metadata": {}, "drop_params": True, "dimensions": None},
        ),
        ("/v2/rerank", {**PAIR, "priority": 1, "relevant_spans": False, "return_len": "true"}),
        ("/api/embed", {"input": "a", "options": {"num_thread": 2}, "keep_alive": "5m"}),
        ("/api/embeddings", {"prompt": "a", "options": {}, "keep_alive": -1}),
        ("/api/show", {"verbose": False}),
        ("/api/pull", {"insecure": False, "stream": False}),
        ("/embedding", {"content": "a", "user": "me"}),
        ("/embed", {"inputs": "a", "options": {"use_cache": False}, "parameters": {"normalize": True}}),
        ("/pooling", {"input": "a", "task": "embed", "encoding_format": "base64", "request_id": "1"}),
    ],
)
def test_documented_fields_without_effect_are_known(
    client: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert HEADER not in answer.headers


@pytest.mark.parametrize("body", BODIES)
def test_every_described_field_is_known(body: type[InferenceBody]) -> None:
    described = body.schema(ServerSettings())["properties"]
    assert described
    assert body.unknown_fields(dict.fromkeys(described)) == []


def test_lines_of_batches_are_counted(tmp_path: Path) -> None:
    with serve_in_thread(replace(QUIET, batch_dir=tmp_path)) as server:
        ended(server.client, create_batch(server.client, [request_line("1", {"input": "a", "foo": 1})]))
        assert server.metric("vecmill_unknown_fields_total", route="batches") == 1
