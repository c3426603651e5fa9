"""One table has a response for every error there is."""

import math
from collections.abc import Iterator

import orjson
import pytest

from vecmill import errors as core
from vecmill_server.base import errors as http
from vecmill_server.base.error_responses import (
    ERROR_SPECS,
    REASONS,
    UNEXPECTED,
    error_response,
    sentence_response,
    spec_of,
)
from vecmill_server.dialects.ollama import ollama_response
from vecmill_server.dialects.tei_bodies import tei_response


def leaves(kind: type[core.VecmillError]) -> Iterator[type[core.VecmillError]]:
    children = kind.__subclasses__()
    if not children or kind in (core.InvalidRequest, core.RequestTooLarge):  # which are raised themselves
        yield kind
    for child in children:
        yield from leaves(child)


def ours() -> list[type[core.VecmillError]]:
    modules = (core.__name__, http.__name__)
    return sorted(
        {leaf for leaf in leaves(core.VecmillError) if leaf.__module__ in modules},
        key=lambda leaf: leaf.__name__,
    )


@pytest.mark.parametrize("leaf", ours())
def test_every_error_has_a_row_of_its_own(leaf: type[core.VecmillError]) -> None:
    assert leaf in ERROR_SPECS


def test_the_table_has_no_row_for_what_does_not_exist() -> None:
    assert set(ERROR_SPECS) == set(ours())


@pytest.mark.parametrize("kind", ERROR_SPECS)
def test_whose_fault_it_is_shows_in_the_status(kind: type[core.VecmillError]) -> None:
    spec = ERROR_SPECS[kind]
    if issubclass(kind, core.RequestError):
        assert 400 <= spec.status < 500
        assert spec.type == "invalid_request_error"
    elif issubclass(kind, core.UnavailableError):
        assert spec.status == 503
    elif issubclass(kind, core.EngineError | core.SetupError):
        assert spec.status == 500
    assert spec.reason in REASONS


def test_the_body_serves_every_client() -> None:
    error = core.InvalidRequest("`input[3]` must be a string.", field="input[3]")
    document = orjson.loads(error_response(error).body)
    assert document == {
        "error": {
            "message": "`input[3]` must be a string.",
            "type": "invalid_request_error",
            "param": "input[3]",
            "code": "invalid_value",
        },
        "message": "`input[3]` must be a string.",
        "detail": "`input[3]` must be a string.",
    }


def test_a_text_that_is_too_long_is_refused_in_the_words_that_clients_of_openai_look_for() -> None:
    error = core.InputTooLong("x", token_count=900, max_tokens=512, where="`input[3]`")
    error.rename_fields({"input": "texts"})
    assert orjson.loads(error_response(error).body)["error"]["message"] == (
        "This model's maximum context length is 512 tokens, however you requested 900 tokens. "
        "Please reduce your prompt; or completion length. The text is `texts[3]`."
    )


def test_one_class_covers_all_limits_on_size_and_two_statuses() -> None:
    assert (spec_of(core.InputLimitExceeded("x")).status, spec_of(core.RequestTooLarge("x")).status) == (
        400,
        413,
    )
    assert spec_of(core.InputLimitExceeded("x")) == spec_of(core.InvalidRequest("x"))


@pytest.mark.parametrize(
    ("retry_after_s", "seconds", "milliseconds"),
    [
        (0.0001, 1, 1),
        (0.4, 1, 400),
        (1.2, 2, 1200),
        (30, 30, 30_000),
        (1e9, 30, 30_000),
        (math.inf, 30, 30_000),
    ],
)
def test_a_full_queue_says_when_to_come_again(retry_after_s: float, seconds: int, milliseconds: int) -> None:
    headers = dict(error_response(core.QueueFull("full", retry_after_s=retry_after_s)).headers)
    assert int(headers[b"retry-after"]) == seconds
    assert int(headers[b"retry-after-ms"]) == milliseconds


def test_headers_tell_clients_what_to_do() -> None:
    def headers(error: Exception) -> dict[bytes, bytes]:
        return dict(error_response(error).headers)

    assert headers(core.InferenceFailed("x"))[b"x-should-retry"] == b"false"
    assert b"retry-after" in headers(core.NotReady("x"))
    assert headers(http.InvalidKey("x"))[b"www-authenticate"] == b"Bearer"
    assert headers(http.MethodNotAllowed("x", allowed=("GET", "HEAD")))[b"allow"] == b"GET, HEAD"
    assert b"retry-after" not in headers(core.RequestTooLarge("x"))


def test_what_nobody_foresaw_keeps_its_words_to_itself() -> None:
    response = error_response(RuntimeError("private"))
    assert response.status == 500
    assert b"private" not in response.body
    assert spec_of(RuntimeError()) is UNEXPECTED


def test_a_subclass_from_elsewhere_gets_its_parents_row() -> None:
    class Special(core.QueueFull):
        pass

    assert spec_of(Special("x", retry_after_s=1)).status == 429


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (core.InvalidRequest("x", field="inputs"), 422, "Validation"),
        (core.UnknownPrompt("x", field="prompt_name"), 422, "Validation"),
        (core.InputLimitExceeded("x", field="inputs"), 422, "Validation"),
        (core.InputTooLong("x", token_count=900, max_tokens=512, where="`inputs[3]`"), 422, "Validation"),
        (core.UnsupportedTask("x", field="model"), 424, "Backend"),
        (core.InferenceFailed("x"), 424, "Backend"),
        (core.NonFiniteOutput("x"), 424, "Backend"),
        (core.QueueFull("x", retry_after_s=1), 429, "Overloaded"),
        (core.NotReady("x"), 503, "Unhealthy"),
        (core.ShuttingDown("x"), 503, "Unhealthy"),
        (core.LaneLost("x"), 503, "Unhealthy"),
        (core.DeadlineExceeded("x"), 504, "Backend"),
        (core.RequestTooLarge("x"), 413, "Validation"),
        (http.InvalidJson("x"), 400, "Validation"),
        (http.UnknownModel("x", name="m"), 404, "Validation"),
    ],
)
def test_tei_has_statuses_and_words_of_its_own(error: core.VecmillError, status: int, kind: str) -> None:
    response = tei_response(error)
    document = orjson.loads(response.body)
    assert (response.status, document["error_type"]) == (status, kind)
    is_long = isinstance(error, core.InputTooLong)
    words = "`inputs` must have less than 512 tokens. Given: 900. The text is `inputs[3]`."
    assert document["error"] == (words if is_long else "x")
    assert response.reason == spec_of(error).reason


def test_some_clients_read_a_sentence() -> None:
    error = http.UnknownModel("The model `m` does not exist.", name="m")
    assert orjson.loads(sentence_response(error).body) == {"error": "The model `m` does not exist."}
    assert orjson.loads(ollama_response(error).body) == {"error": 'model "m" not found, try pulling it first'}
    assert sentence_response(error).status == ollama_response(error).status == 404
    full = ollama_response(core.QueueFull("full", retry_after_s=1))
    assert orjson.loads(full.body) == {"error": "full"}
    assert (b"retry-after", b"1") in full.headers
