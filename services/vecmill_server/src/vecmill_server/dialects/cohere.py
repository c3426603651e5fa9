"""Cohere's `/v1/embed`, `/v2/embed` and `/v1/tokenize`. Its rerank is in `rerank`.

Source: the cohere package, versions 5 to 7, and the API reference. `embedding_types` asks for several kinds
of rows at once; version 1 without it gives plain rows.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from vecmill.errors import InvalidRequest
from vecmill.reading import Reading
from vecmill.rows import RowKind
from vecmill.types import JsonValue
from vecmill_server.calls import DetokenizeCall, Detokenized, EmbedCall, Embedded, TokenizeCall, Tokenized
from vecmill_server.dialects import Asked, Dialect, DialectOptions, Document
from vecmill_server.dialects.fields import (
    base64_rows,
    read_dimensions,
    read_purpose,
    read_row_types,
    read_token_ids,
    read_truncation,
)
from vecmill_server.documents import (
    Envelope,
    read_count,
    read_items,
    read_required,
    read_string,
    read_text,
)

_BASE64 = "base64"


def read_embed_v1(document: Document, options: DialectOptions) -> Asked:
    """Version 1: texts alone, and rows of several kinds only where they are asked for."""
    call, names = _read_embed(document)
    return Asked(call, partial(_write_v1, call, names))


def read_embed_v2(document: Document, options: DialectOptions) -> Asked:
    """Version 2: texts, or inputs made of parts."""
    call, names = _read_embed(document)
    return Asked(call, partial(_write_v2, call, names or ("float",)))


def read_tokenize(document: Document, options: DialectOptions) -> Asked:
    """`/v1/tokenize` with `text`."""
    text = read_required(document, "text")
    call = TokenizeCall(read_string(document, "model"), (text,), special=False, field="text")
    return Asked(call, _write_tokens)


def read_detokenize(document: Document, options: DialectOptions) -> Asked:
    """`/v1/detokenize` with `tokens`."""
    ids = read_token_ids(read_items(document, "tokens", "a list of token ids"), "tokens")
    call = DetokenizeCall(read_string(document, "model"), (ids,))

    def write(result: Detokenized, envelope: Envelope) -> JsonValue:
        return {"text": result.texts[0], "meta": {"api_version": {"version": "1"}}}

    return Asked(call, write)


def _read_embed(document: Document) -> tuple[EmbedCall, tuple[str, ...]]:
    names = _read_types(document)
    call = EmbedCall(
        model=read_string(document, "model"),
        inputs=_read_texts(document),
        reading=Reading(
            purpose=read_purpose(document, "input_type"),
            truncation=read_truncation(document).within(read_count(document, "max_tokens")),
        ),
        dimensions=read_dimensions(document),
        kinds=tuple(RowKind(name) for name in names if name != _BASE64) or (RowKind.FLOAT,),
        field="texts" if document.get("texts") is not None else "inputs",
    )
    return call, names


def _read_types(document: Document) -> tuple[str, ...]:
    return () if document.get("embedding_types") is None else read_row_types(document, "embedding_types")


def _read_texts(document: Document) -> tuple[str, ...]:
    if document.get("images") is not None:
        raise InvalidRequest("`images` are not embedded: this server reads text alone.", field="images")
    texts = _read_list(document, "texts", read_text)
    inputs = _read_list(document, "inputs", _read_parts)
    if not texts and not inputs:
        raise InvalidRequest("`texts` is required: a list of strings.", field="texts")
    return texts or inputs


def _read_list(document: Document, name: str, read: Callable[[JsonValue, str], str]) -> tuple[str, ...]:
    """The texts of a list, which `read` takes out of its items; none if it is absent."""
    if document.get(name) is None:
        return ()
    items = read_items(document, name, "a list of texts")
    return tuple(read(item, f"{name}[{index}]") for index, item in enumerate(items))


def _read_parts(item: JsonValue, field: str) -> str:
    """The text of `{"content": [{"type": "text", "text": ...}]}`."""
    content = item.get("content") if isinstance(item, dict) else None
    if not isinstance(content, list) or not content:
        raise InvalidRequest(f"`{field}.content` must be a list of at least one part.", field=field)
    for part in content:
        if not isinstance(part, dict) or not isinstance(part.get("text"), str):
            raise InvalidRequest(
                f'`{field}.content` may hold {{"type": "text", "text": a string}} alone: this server reads '
                "text.",
                field=field,
            )
    return "\n".join(part["text"] for part in content)


def _write_v1(call: EmbedCall, names: tuple[str, ...], result: Embedded, envelope: Envelope) -> JsonValue:
    units = {"input_tokens": result.token_count}
    answer = _write_common(call, envelope, version="1", units=units)
    if not names:
        return {**answer, "response_type": "embeddings_floats", "embeddings": result.rows}
    return {**answer, "response_type": "embeddings_by_type", "embeddings": _rows_by_type(names, result)}


def _write_v2(call: EmbedCall, names: tuple[str, ...], result: Embedded, envelope: Envelope) -> JsonValue:
    units = {"input_tokens": result.token_count, "image_tokens": 0}
    answer = _write_common(call, envelope, version="2", units=units)
    return {**answer, "response_type": "embeddings_by_type", "embeddings": _rows_by_type(names, result)}


def _write_common(
    call: EmbedCall, envelope: Envelope, *, version: str, units: Mapping[str, int]
) -> dict[str, Any]:
    return {
        "id": f"embd-{envelope.request_id}",
        "texts": list(call.inputs),
        "meta": {"api_version": {"version": version}, "billed_units": units},
    }


def _rows_by_type(names: tuple[str, ...], result: Embedded) -> dict[str, Any]:
    return {
        name: base64_rows(result.rows) if name == _BASE64 else result.rows_as(RowKind(name)) for name in names
    }


def _write_tokens(result: Tokenized, envelope: Envelope) -> JsonValue:
    (tokens,) = result.result.tokens
    return {
        "tokens": [token.token_id for token in tokens],
        "token_strings": [token.piece for token in tokens],
        "meta": {"api_version": {"version": "1"}},
    }


EMBED_V1 = Dialect(read_embed_v1)
EMBED_V2 = Dialect(read_embed_v2)
TOKENIZE = Dialect(read_tokenize)
DETOKENIZE = Dialect(read_detokenize)
