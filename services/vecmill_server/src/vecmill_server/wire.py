"""JSON to values and values to JSON: every check of a request's shape, and the only user of orjson.

Reading is lenient where clients differ (unknown fields are ignored, null is absent, "true" is true)
and strict where a guess could give a wrong vector. No message repeats what the client sent: it may be
secret, or nested so deeply that printing it fails.
"""

import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from vecmill.errors import InvalidRequest
from vecmill.types import EmbedRequest, EmbedResult, FloatArray, JsonValue, RerankResult, TextOrIds
from vecmill_server.errors import InvalidJson
from vecmill_server.settings import TokenIds

# No vocabulary comes near; anything above cannot be an id, and might not fit an integer.
LARGEST_TOKEN_ID = 2**31 - 1

REFUSED_TOKEN_IDS = (
    "Token ids are not accepted, because ids made by another tokenizer would give wrong vectors. Send text. "
    "With LangChain's OpenAIEmbeddings, set check_embedding_ctx_length=False. "
    "If they are the model's own ids, start the server with --token-ids native."
)


@dataclass(frozen=True, slots=True)
class EmbeddingsCall:
    """The body of a request for embeddings."""

    model: str | None
    inputs: tuple[TextOrIds, ...]
    base64: bool
    dimensions: int | None
    prompt_name: str | None
    truncate: bool

    def request(self, *, timeout_s: float | None) -> EmbedRequest:
        """What the mill is asked."""
        return EmbedRequest(
            inputs=self.inputs,
            prompt_name=self.prompt_name,
            dimensions=self.dimensions,
            truncate=self.truncate,
            timeout_s=timeout_s,
        )


@dataclass(frozen=True, slots=True)
class RerankCall:
    """The body of a request to rerank. `top_n` is `None` for all documents."""

    model: str | None
    query: str
    documents: tuple[str, ...]
    top_n: int | None
    return_documents: bool


@dataclass(frozen=True, slots=True)
class Envelope:
    """What surrounds an answer. `created` is a Unix time in seconds."""

    request_id: str
    model: str
    created: int


def encode_json(value: JsonValue) -> bytes:
    """JSON as bytes. Numpy arrays must be C-contiguous and finite."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def decode_object(body: bytes) -> Mapping[str, Any]:
    """The JSON object in `body`. Raises `InvalidJson`."""
    if not body:
        raise InvalidJson("The body is empty. Send a JSON object.")
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        # The error's own text names what is wrong and where; `doc`, which it carries, is left alone.
        raise InvalidJson(f"The body is not valid JSON: {error.msg} at position {error.pos}.") from None
    if not isinstance(document, dict):
        raise InvalidJson("The body must be a JSON object.")
    return document


def decode_embeddings(body: bytes, token_ids: TokenIds) -> EmbeddingsCall:
    """Read the body of a request for embeddings. Raises `InvalidJson` or `InvalidRequest`."""
    document = decode_object(body)
    return EmbeddingsCall(
        model=_optional_string(document, "model"),
        inputs=_inputs(document.get("input"), token_ids),
        base64=_encoding_format(document) == "base64",
        dimensions=_count(document, "dimensions"),
        prompt_name=_optional_string(document, "prompt_name"),
        truncate=_flag(document, "truncate", default=True),
    )


def decode_rerank(body: bytes) -> RerankCall:
    """Read the body of a request to rerank. Raises `InvalidJson` or `InvalidRequest`."""
    document = decode_object(body)
    query = document.get("query")
    if not isinstance(query, str):
        raise InvalidRequest("`query` is required, and must be a string.", field="query")
    return RerankCall(
        model=_optional_string(document, "model"),
        query=query,
        documents=_documents(document.get("documents")),
        top_n=_count(document, "top_n"),
        return_documents=_flag(document, "return_documents", default=False),
    )


def encode_embeddings(result: EmbedResult, envelope: Envelope, *, base64: bool) -> bytes:
    """The answer to a request for embeddings; base64 is that of little-endian float32."""
    rows = _base64_rows(result.rows) if base64 else result.rows
    return encode_json(
        {
            "id": f"embd-{envelope.request_id}",
            "object": "list",
            "created": envelope.created,
            "model": envelope.model,
            "data": [
                {"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)
            ],
            "usage": {"prompt_tokens": result.token_count, "total_tokens": result.token_count},
        }
    )


def encode_rerank(result: RerankResult, call: RerankCall, envelope: Envelope) -> bytes:
    """The answer to a request to rerank: best first, ties in input order."""
    best = (-result.scores).argsort(kind="stable")[: call.top_n].tolist()
    ranked: list[dict[str, Any]] = [
        {"index": index, "relevance_score": result.scores[index]} for index in best
    ]
    if call.return_documents:
        for entry in ranked:
            entry["document"] = {"text": call.documents[entry["index"]]}
    tokens = result.token_count
    return encode_json(
        {
            "id": f"rerank-{envelope.request_id}",
            "object": "rerank",
            "created": envelope.created,
            "model": envelope.model,
            "results": ranked,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            "meta": {
                "api_version": {"version": "2"},
                "billed_units": {"search_units": 1, "input_tokens": tokens},
                "tokens": {"input_tokens": tokens, "output_tokens": 0},
            },
        }
    )


def _base64_rows(rows: FloatArray) -> list[str]:
    little_endian = rows.astype("<f4", copy=False)
    return [binascii.b2a_base64(row.tobytes(), newline=False).decode("ascii") for row in little_endian]


def _inputs(value: JsonValue, token_ids: TokenIds) -> tuple[TextOrIds, ...]:
    if isinstance(value, str):
        return (value,)
    if value is None:
        raise InvalidRequest("`input` is required: a string, or a list of strings.", field="input")
    if not isinstance(value, list):
        raise InvalidRequest("`input` must be a string, or a list of strings.", field="input")
    if not value:
        raise InvalidRequest("`input` is an empty list: there is nothing to embed.", field="input")
    if type(value[0]) is int:  # one text, as ids
        return (_ids(value, "input", token_ids),)
    return tuple(_input(item, index, token_ids) for index, item in enumerate(value))


def _input(item: JsonValue, index: int, token_ids: TokenIds) -> TextOrIds:
    if isinstance(item, str):
        return item
    if isinstance(item, list):
        return _ids(item, f"input[{index}]", token_ids)
    raise InvalidRequest(f"`input[{index}]` must be a string, not {_kind(item)}.", field=f"input[{index}]")


def _ids(items: Sequence[JsonValue], field: str, token_ids: TokenIds) -> tuple[int, ...]:
    if not items:
        raise InvalidRequest(f"`{field}` is an empty list of token ids.", field=field)
    for index, item in enumerate(items):
        if type(item) is not int or not 0 <= item <= LARGEST_TOKEN_ID:
            raise InvalidRequest(
                f"`{field}[{index}]` must be a token id, a whole number from 0 up, not {_kind(item)}.",
                field=f"{field}[{index}]",
            )
    if token_ids is TokenIds.REFUSE:
        raise InvalidRequest(REFUSED_TOKEN_IDS, field=field)
    return tuple(items)


def _documents(value: JsonValue) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise InvalidRequest("`documents` is required: a list of at least one text.", field="documents")
    return tuple(_document(item, index) for index, item in enumerate(value))


def _document(item: JsonValue, index: int) -> str:
    text = item.get("text") if isinstance(item, dict) else item
    if isinstance(text, str):
        return text
    field = f"documents[{index}]"
    raise InvalidRequest(f'`{field}` must be a string or {{"text": a string}}.', field=field)


def _encoding_format(document: Mapping[str, Any]) -> str:
    value = document.get("encoding_format")
    if value is None:
        return "float"
    if value not in ("float", "base64"):
        raise InvalidRequest('`encoding_format` must be "float" or "base64".', field="encoding_format")
    return str(value)


def _optional_string(document: Mapping[str, Any], name: str) -> str | None:
    value = document.get(name)
    if value is None or isinstance(value, str):
        return value
    raise InvalidRequest(f"`{name}` must be a string, not {_kind(value)}.", field=name)


def _count(document: Mapping[str, Any], name: str) -> int | None:
    """A whole number; 0 is how some clients say that they want no limit."""
    value = document.get(name)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= LARGEST_TOKEN_ID:
        raise InvalidRequest(f"`{name}` must be a whole number that is not negative.", field=name)
    return value or None


def _flag(document: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = document.get(name)
    if value is None:
        return default
    if isinstance(value, str):
        value = {"true": True, "false": False}.get(value.lower())
    if isinstance(value, bool):
        return value
    raise InvalidRequest(f"`{name}` must be true or false.", field=name)


def _kind(value: JsonValue) -> str:
    """What JSON calls a value of this type."""
    names = {
        type(None): "null",
        bool: "a boolean",
        int: "this number",
        float: "a fraction or too large a number",
        str: "a string",
        list: "a list",
        dict: "an object",
    }
    return names[type(value)]
