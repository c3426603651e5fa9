"""The `openai` npm package, as it comes, against the live server, under the Node of the test environment."""

from typing import Any

import numpy as np
import pytest

from clients.inputs import TEXTS
from support.client_packages import drive_npm
from support.plain_http import embed
from support.server import MODEL, LiveServer

TOLERANCE = 1e-6
CALLS: dict[str, tuple[str, Any]] = {
    "default": ("embed", {"model": MODEL, "input": TEXTS}),
    "float": ("embed", {"model": MODEL, "input": TEXTS, "encoding_format": "float"}),
    "one string": ("embed", {"model": MODEL, "input": TEXTS[0]}),
    "dimensions": ("embed", {"model": MODEL, "input": TEXTS, "dimensions": 64}),
    "unknown model": ("embed", {"model": "gpt-none", "input": "a text"}),
    "empty": ("embed", {"model": MODEL, "input": []}),
    "list": ("list", None),
    "retrieve": ("retrieve", MODEL),
    "retrieve unknown": ("retrieve", "some/other-model"),
}


@pytest.fixture(scope="module")
def answers(server: LiveServer) -> dict[str, Any]:
    """What each of `CALLS` came to: `{"result": ...}` or `{"error": ...}`."""
    return dict(zip(CALLS, drive_npm(server.url, list(CALLS.values())), strict=True))


@pytest.mark.parametrize("call", ["default", "float"])
def test_rows_are_the_plain_floats(server: LiveServer, answers: dict[str, Any], call: str) -> None:
    rows = np.array(answers[call]["result"], np.float32)
    expected = embed(server.url, TEXTS)
    assert rows.shape == expected.shape
    np.testing.assert_allclose(rows, expected, rtol=0, atol=TOLERANCE)


def test_one_string_is_one_row(server: LiveServer, answers: dict[str, Any]) -> None:
    rows = np.array(answers["one string"]["result"], np.float32)
    np.testing.assert_allclose(rows, embed(server.url, TEXTS[:1]), rtol=0, atol=TOLERANCE)


def test_dimensions(server: LiveServer, answers: dict[str, Any]) -> None:
    rows = np.array(answers["dimensions"]["result"], np.float32)
    np.testing.assert_allclose(rows, embed(server.url, TEXTS, dimensions=64), rtol=0, atol=TOLERANCE)
    assert rows.shape == (len(TEXTS), 64)


def test_an_unknown_model_is_not_found(answers: dict[str, Any]) -> None:
    error = answers["unknown model"]["error"]
    assert (error["name"], error["status"]) == ("NotFoundError", 404)
    assert (error["code"], error["type"]) == ("model_not_found", "invalid_request_error")
    assert "gpt-none" in error["message"]
    assert MODEL in error["message"]


def test_an_empty_list_is_a_bad_request(answers: dict[str, Any]) -> None:
    error = answers["empty"]["error"]
    assert (error["name"], error["status"]) == ("BadRequestError", 400)
    assert "input" in error["message"]


def test_models(answers: dict[str, Any]) -> None:
    assert answers["list"] == {"result": [MODEL]}
    assert answers["retrieve"] == {"result": MODEL}
    assert answers["retrieve unknown"]["error"]["name"] == "NotFoundError"
