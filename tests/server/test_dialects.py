"""Bodies become values, leniently where clients differ and strictly where a guess would be wrong."""

import base64
from typing import Any

import numpy as np
import orjson
import pytest

from vecmill.errors import InvalidRequest
from vecmill.requests import Embed, Rerank
from vecmill.results import EmbedResult, RerankResult, Timings
from vecmill_server.base.errors import InvalidJson
from vecmill_server.base.json_io import decode_object, encode_json
from vecmill_server.base.settings import TokenIds
from vecmill_server.dialects.dialect import Asked, Envelope, InferenceBody
from vecmill_server.dialects.dialect_routes import ROUTES
from vecmill_server.dialects.embeddings_body import EmbeddingsRequest
from vecmill_server.dialects.fields import DialectOptions, Field
from vecmill_server.dialects.rerank_body import RerankRequest
from vecmill_server.dialects.token_ids import choose_ids_reader

TIMINGS = Timings(0.0, 0.0, 0.0, 0.0)
OPTIONS = DialectOptions(choose_ids_reader(TokenIds.NATIVE), lambda _name, _tasks=(), /: None)
ENVELOPE = Envelope("the-id", "the-model", 1_700_000_000)


def ask(kind: type[InferenceBody], token_ids: TokenIds = TokenIds.NATIVE, **body: Any) -> Asked:
    return kind.parse(body, DialectOptions(choose_ids_reader(token_ids), lambda _name, _tasks=(), /: None))


def decode(token_ids: TokenIds = TokenIds.NATIVE, **document: Any) -> Embed:
    request = ask(EmbeddingsRequest, token_ids, **document).request
    assert isinstance(request, Embed)
    return request


def write(asked: Asked, result: Any) -> Any:
    return orjson.loads(encode_json(asked.write(result, ENVELOPE)))


def test_absent_fields_get_the_defaults_of_the_library() -> None:
    assert decode(input="a") == Embed(("a",))


@pytest.mark.parametrize(
    ("value", "inputs"),
    [
        ("a", ("a",)),
        ("", ("",)),
        (["a", ""], ("a", "")),
        ([1, 2, 3], ((1, 2, 3),)),
        ([[1, 2], [3]], ((1, 2), (3,))),
        (["a", [1, 2]], ("a", (1, 2))),
        ([[1, 2], "a"], ((1, 2), "a")),
        ([0], ((0,),)),
    ],
)
def test_inputs_come_in_every_shape(value: object, inputs: tuple[object, ...]) -> None:
    assert decode(input=value).inputs == inputs


BODIES = sorted({body for route in ROUTES for body in route.bodies}, key=lambda body: body.__name__)


@pytest.mark.parametrize("kind", BODIES, ids=lambda kind: kind.__name__)
def test_absent_fields_have_the_values_that_reading_them_gives(kind: type[InferenceBody]) -> None:
    body = kind({}, OPTIONS)
    for attribute, value in vars(body).items():
        field = getattr(kind, attribute, None)
        if isinstance(field, Field):
            assert field.read(body) == value
    nulls = kind(dict.fromkeys(name for field in kind.fields() for name in field.properties), OPTIONS)
    assert not any(isinstance(getattr(kind, attribute, None), Field) for attribute in vars(nulls))


def test_only_the_fields_that_a_body_has_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    get: Any = Field.__get__
    asked = []

    def note(field: Field[Any], body: Any, owner: type) -> Any:
        if body is not None:
            asked.append(next(iter(field.properties)))
        return get(field, body, owner)

    monkeypatch.setattr(Field, "__get__", note)
    body = {"input": "a", "model": "m", "encoding_format": "base64"}
    EmbeddingsRequest.parse(body, OPTIONS)
    assert set(asked) == set(body)


def test_refused_token_ids_say_how_to_send_text() -> None:
    for value in ([1], [[1]], ["a", [1]]):
        with pytest.raises(InvalidRequest, match="check_embedding_ctx_length=False"):
            decode(TokenIds.REFUSE, input=value)


@pytest.mark.parametrize(
    ("value", "expected"), [("true", True), ("False", False), (True, True), (False, False), (None, None)]
)
def test_flags_may_be_strings(value: object, expected: bool | None) -> None:
    assert decode(input="a", truncate=value).options.truncation.is_allowed is expected


def test_zero_and_null_counts_are_unset() -> None:
    assert decode(input="a", dimensions=0).dimensions is None
    assert decode(input="a", dimensions=None).dimensions is None
    assert decode(input="a", dimensions=3).dimensions == 3
    asked = ask(RerankRequest, query="q", documents=["a", "b"], top_n=0)
    ranked = write(asked, RerankResult(np.array([0.1, 0.2], np.float32), 4, TIMINGS))
    assert [result["index"] for result in ranked["results"]] == [1, 0]


def test_a_refusal_does_not_repeat_what_was_sent() -> None:
    for body in (
        b'{"input": {"secret": 1}}',
        b'{"input": ["secret", {"secret": 1}]}',
        b'{"secret',
        b'"secret"',
    ):
        with pytest.raises((InvalidRequest, InvalidJson)) as refusal:
            decode(TokenIds.REFUSE, **decode_object(body))
        assert "secret" not in refusal.value.message


def test_only_objects_are_bodies() -> None:
    for body in (b"", b"[]", b"1", b'"a"', b"null", b"{", b"\xef\xbb\xbf{}", b"[" * 5_000):
        with pytest.raises(InvalidJson):
            decode_object(body)
    assert decode_object(b'{"a": 1, "a": 2}') == {"a": 2}


def result_of(rows: np.ndarray) -> EmbedResult:
    return EmbedResult(rows, (3,) * len(rows), TIMINGS)


def test_floats_keep_every_bit() -> None:
    rows = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
    document = write(ask(EmbeddingsRequest, input="a"), result_of(rows))
    np.testing.assert_array_equal(
        np.array([entry["embedding"] for entry in document["data"]], np.float32), rows
    )
    assert document["usage"] == {"prompt_tokens": 15, "total_tokens": 15, "completion_tokens": 0}
    assert (document["id"], document["model"], document["created"]) == (
        "embd-the-id",
        "the-model",
        1_700_000_000,
    )


def test_whole_numbers_are_still_written_as_floats() -> None:
    result = result_of(np.array([[0.0, 1.0]], np.float32))
    assert b"[0.0,1.0]" in encode_json(ask(EmbeddingsRequest, input="a").write(result, ENVELOPE))


def test_base64_is_little_endian_float32_with_padding() -> None:
    row = np.array([[0.1, -0.2]], np.float32)
    document = write(ask(EmbeddingsRequest, input="a", encoding_format="base64"), result_of(row))
    assert document["data"][0]["embedding"] == "zczMPc3MTL4="
    assert base64.b64decode("zczMPc3MTL4=") == row.astype("<f4").tobytes()


def test_reranked_documents_are_sorted_and_ties_stay() -> None:
    body: dict[str, Any] = {
        "query": "q",
        "documents": ["a", "b", "c", "d"],
        "top_n": 3,
        "return_documents": True,
    }
    asked = ask(RerankRequest, **body)
    assert asked.request == Rerank(("q",), ("a", "b", "c", "d"))
    document = write(asked, RerankResult(np.array([0.5, 0.9, 0.5, 0.1], np.float32), 12, TIMINGS))
    assert [result["index"] for result in document["results"]] == [1, 0, 2]
    assert [result["document"]["text"] for result in document["results"]] == ["b", "a", "c"]
    assert document["results"][0]["relevance_score"] == 0.9
