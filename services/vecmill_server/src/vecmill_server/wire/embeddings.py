"""The body of `/embeddings` and its answer."""

import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vecmill.errors import InvalidRequest
from vecmill.types import EmbedRequest, EmbedResult, FloatArray, JsonValue, TextOrIds
from vecmill_server.settings import TokenIds
from vecmill_server.wire.documents import (
    LARGEST_WHOLE_NUMBER,
    Envelope,
    decode_object,
    encode_json,
    kind_of,
    read_count,
    read_flag,
    read_string,
    refuse_other_modalities,
)

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


def decode_embeddings(body: bytes, token_ids: TokenIds) -> EmbeddingsCall:
    """Read the body of a request for embeddings. Raises `InvalidJson` or `InvalidRequest`."""
    document = decode_object(body)
    refuse_other_modalities(document)
    return EmbeddingsCall(
        model=read_string(document, "model"),
        inputs=_inputs(document.get("input"), token_ids),
        base64=_encoding_format(document) == "base64",
        dimensions=read_count(document, "dimensions"),
        prompt_name=read_string(document, "prompt_name"),
        truncate=read_flag(document, "truncate", default=True),
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
    if isinstance(item, dict) and not item.keys().isdisjoint(("image", "image_url", "audio")):
        raise InvalidRequest(
            f"`input[{index}]` is an image or audio: this server reads text alone.", field=f"input[{index}]"
        )
    raise InvalidRequest(f"`input[{index}]` must be a string, not {kind_of(item)}.", field=f"input[{index}]")


def _ids(items: Sequence[JsonValue], field: str, token_ids: TokenIds) -> tuple[int, ...]:
    if not items:
        raise InvalidRequest(f"`{field}` is an empty list of token ids.", field=field)
    for index, item in enumerate(items):
        if type(item) is not int or not 0 <= item <= LARGEST_WHOLE_NUMBER:
            raise InvalidRequest(
                f"`{field}[{index}]` must be a token id, a whole number from 0 up, not {kind_of(item)}.",
                field=f"{field}[{index}]",
            )
    if token_ids is TokenIds.REFUSE:
        raise InvalidRequest(REFUSED_TOKEN_IDS, field=field)
    return tuple(items)


def _encoding_format(document: Mapping[str, Any]) -> str:
    value = document.get("encoding_format")
    if value is None:
        return "float"
    if value not in ("float", "base64"):
        raise InvalidRequest('`encoding_format` must be "float" or "base64".', field="encoding_format")
    return str(value)
