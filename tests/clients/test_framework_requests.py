"""Requests of large packages, as the packages send them, get the plain rows and scores."""

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from clients.framework_requests import CALLS, SETTINGS, read_recorded, record
from clients.inputs import DOCUMENTS, QUERY, UNKNOWN
from clients.request_recorder import SentRequest
from support.http_server import HttpServer, serve_in_thread
from support.plain_http import embed
from vecmill.values.aliases import FloatArray

RECORDED = read_recorded()
SENT = {
    f"{driver}-{number}": request
    for driver, requests in RECORDED.items()
    for number, request in enumerate(requests)
}
WITH_MODEL = {name: request for name, request in SENT.items() if '"model"' in request.body}


@pytest.fixture(scope="module")
def served() -> Iterator[HttpServer]:
    with serve_in_thread(SETTINGS) as server:
        yield server


@pytest.mark.parametrize("name", SENT)
def test_a_recorded_request_gets_the_plain_numbers(served: HttpServer, name: str) -> None:
    request = SENT[name]
    answer = send(served.client, request)
    assert answer.status_code == 200, answer.text
    asked = json.loads(request.body or "{}")
    if "query" in asked:
        assert ranking_of(answer.json()) == plain_ranking(served.client)
    elif texts := asked.get("input") or asked.get("inputs"):
        expected = embed(str(served.client.base_url), texts, dimensions=asked.get("dimensions"))
        np.testing.assert_array_equal(rows_of(answer.json()), expected)


@pytest.mark.parametrize("name", WITH_MODEL)
def test_an_unknown_model_is_a_404_with_its_name(served: HttpServer, name: str) -> None:
    asked = {**json.loads(WITH_MODEL[name].body), "model": UNKNOWN}
    answer = send(served.client, replace(WITH_MODEL[name], body=json.dumps(asked)))
    assert (answer.status_code, UNKNOWN in answer.text) == (404, True)


@pytest.mark.full
@pytest.mark.parametrize("driver", CALLS)
def test_the_recorded_requests_are_those_of_the_packages(driver: str, tmp_path: Path) -> None:
    assert record(driver, tmp_path) == RECORDED[driver]


def send(client: httpx.Client, request: SentRequest) -> httpx.Response:
    """Send it as the client did."""
    url = f"{str(client.base_url).rstrip('/')}{request.path}"
    return client.request(request.method, url, headers=request.headers, content=request.body.encode())


def rows_of(answer: Any) -> FloatArray:
    """Embeddings in any form in which clients ask for them."""
    if isinstance(answer, dict) and "data" in answer:
        answer = [entry["embedding"] for entry in answer["data"]]
    rows = answer["embeddings"] if isinstance(answer, dict) else answer
    unpacked = [np.frombuffer(base64.b64decode(row), "<f4") if isinstance(row, str) else row for row in rows]
    return np.array(unpacked, np.float32)


def ranking_of(answer: Any) -> list[tuple[int, float]]:
    """Places and scores in any form in which clients ask for them."""
    entries = answer if isinstance(answer, list) else answer.get("results") or answer["data"]
    return [(entry["index"], entry.get("relevance_score", entry.get("score"))) for entry in entries]


def plain_ranking(client: httpx.Client) -> list[tuple[int, float]]:
    return ranking_of(client.post("/rerank", json={"query": QUERY, "documents": DOCUMENTS}).json())
