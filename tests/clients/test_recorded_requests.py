"""Recorded requests of packages that `make test` does not install get what these packages read.

`make test-all` finds out whether the packages still send them.
"""

import base64
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from clients.inputs import CLASSIFIER, TEXTS
from clients.record_requests import RECORDED, read, record, recorded_calls
from clients.request_recorder import SentRequest
from support.plain_http import post
from support.server import LiveServer
from vecmill.values.aliases import FloatArray

# What the others hold differs between machines and versions.
COMPARED_HEADERS = {"accept", "authorization", "content-type"}


def calls(kind: str) -> list[tuple[str, str]]:
    """Clients and calls of the recorded requests for rows, rankings or labels."""
    return [(client, call) for client, call in recorded_calls() if call.split()[0] == kind]


@pytest.fixture(scope="module")
def http(zoo: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=zoo.url, timeout=60) as made:
        yield made


def send(http: httpx.Client, request: SentRequest) -> Any:
    """The JSON of the server's answer to a recorded request."""
    answer = http.request(request.method, request.path, headers=dict(request.headers), content=request.body)
    assert answer.status_code == 200, answer.text
    assert "x-unknown-fields" not in answer.headers
    return answer.json()


def read_rows(answer: Any) -> FloatArray:
    """The rows, from where the client looks for them."""
    found = answer.get("output", answer) if isinstance(answer, dict) else answer
    if isinstance(found, dict):
        found = found.get("embeddings") or found["data"]
    if isinstance(found, list) and isinstance(found[0], dict):
        found = [entry.get("embedding") or entry["values"] for entry in found]
    if isinstance(found, dict):
        found = found["float"]
    if isinstance(found[0], str):
        found = [np.frombuffer(base64.b64decode(row), "<f4") for row in found]
    return np.array(found, np.float32)


def read_tokens(answer: Any) -> int:
    """The number of tokens, from where the client looks for it."""
    if "meta" in answer:
        return int(answer["meta"]["billed_units"]["input_tokens"])
    if "usage" in answer:
        usage = answer["usage"]
        assert usage.get("prompt_tokens", usage["total_tokens"]) == usage["total_tokens"]
        return int(usage["total_tokens"])
    if "input_tokens" in answer:
        return int(answer["input_tokens"])
    return int(answer["prompt_eval_count"])


def read_ranking(answer: Any) -> list[list[float]]:
    """The places and scores, from where the client looks for them."""
    found = answer.get("output", answer) if isinstance(answer, dict) else {"results": answer}
    if "scores" in found:  # in input order
        best_first = sorted(enumerate(found["scores"]), key=lambda pair: -pair[1])
        return [[place, score] for place, score in best_first]
    entries = found["data" if "data" in found else "results"]
    return [[entry["index"], entry.get("relevance_score", entry.get("score"))] for entry in entries]


@pytest.mark.parametrize(("client", "call"), calls("embed"))
def test_rows_are_the_plain_ones(
    http: httpx.Client, rows: FloatArray, tokens: int, client: str, call: str
) -> None:
    answer = send(http, read(client)[call])
    np.testing.assert_array_equal(read_rows(answer), rows)
    if isinstance(answer, dict):  # TEI's is a list of rows
        assert read_tokens(answer) == tokens


@pytest.mark.parametrize(("client", "call"), calls("rerank"))
def test_scores_are_the_plain_ones(
    http: httpx.Client, ranking: list[list[float]], client: str, call: str
) -> None:
    answer = send(http, read(client)[call])
    if "rankings" in answer:  # NVIDIA's scores are logits
        assert [entry["index"] for entry in answer["rankings"]] == [place for place, _ in ranking]
        return
    assert read_ranking(answer) == ranking


@pytest.mark.parametrize(("client", "call"), calls("classify"))
def test_labels_are_the_plain_ones(http: httpx.Client, zoo: LiveServer, client: str, call: str) -> None:
    expected = post(f"{zoo.url}/predict", {"model": CLASSIFIER, "inputs": [[TEXTS[0]]]})
    assert send(http, read(client)[call]) == expected


@pytest.mark.full
@pytest.mark.parametrize("client", RECORDED)
def test_the_packages_still_send_them(zoo: LiveServer, tmp_path: Path, client: str) -> None:
    sent = {call: comparable(request) for call, request in record(client, zoo.url, tmp_path).items()}
    assert sent == {call: comparable(request) for call, request in read(client).items()}


def comparable(request: SentRequest) -> tuple[SentRequest, list[str]]:
    """The request with the headers that are the same everywhere, and the names of all its headers."""
    headers = {name: value for name, value in request.headers.items() if name in COMPARED_HEADERS}
    return replace(request, headers=headers), sorted(request.headers)
