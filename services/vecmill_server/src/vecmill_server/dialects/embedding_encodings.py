"""The encodings of embeddings in responses (JSON numbers or base64 of each dtype), and their fields."""

import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from vecmill.results import EmbedResult
from vecmill.values.aliases import JsonValue
from vecmill.values.embeddings import OutputDtype
from vecmill.vectors.transforms import quantize
from vecmill_server.base import json_schema
from vecmill_server.base.json_schema import Schema
from vecmill_server.dialects import fields
from vecmill_server.dialects.fields import Field, RequestBody
from vecmill_server.dialects.float_formats import (
    BYTE_ORDER,
    FLOAT_TYPE,
    FloatFormat,
    read_float_format,
)

_BASE64 = "base64"

# Cohere's and Jina's names of encodings: a dtype, or base64 of float32.
ENCODING_NAMES: tuple[str, ...] = (*map(str, OutputDtype), _BASE64)

ENCODING_LIST: Schema = {
    "type": "array",
    "minItems": 1,
    "items": {"type": "string", "enum": list(ENCODING_NAMES)},
}
EMBEDDING: Schema = {
    "anyOf": [
        json_schema.like([float]),
        json_schema.described(str, "base64 of the bytes of the embedding, by default little-endian"),
    ]
}
_FLOAT32 = FloatFormat()


@dataclass(frozen=True, slots=True)
class EmbeddingEncoding:
    """The encoding of embeddings of one dtype, as lists of numbers or as base64 of their bytes.

    `float_format` is the format of float embeddings in base64.
    """

    dtype: OutputDtype = OutputDtype.FLOAT
    is_base64: bool = False
    float_format: FloatFormat = _FLOAT32

    def encode(
        self, arrays: Iterable[npt.NDArray[np.generic]]
    ) -> list[str] | Iterable[npt.NDArray[np.generic]]:
        """Encode embeddings, or other arrays, that already have the dtype."""
        return encode_base64(arrays, self.float_format) if self.is_base64 else arrays

    def encode_result(self, result: EmbedResult) -> list[str] | Iterable[npt.NDArray[np.generic]]:
        """Quantise and encode the embeddings of `result`."""
        return self.encode(quantize(result.embeddings, self.dtype, result.ranges))


def encode_base64(
    arrays: Iterable[npt.NDArray[np.generic]], float_format: FloatFormat = _FLOAT32
) -> list[str]:
    """Return each array as base64 of its bytes, by default little-endian."""
    packed = map(float_format.to_bytes, arrays)
    return [binascii.b2a_base64(each, newline=False).decode("ascii") for each in packed]


def named_encoding(
    name: str, *, is_base64: bool = False, float_format: FloatFormat = _FLOAT32
) -> EmbeddingEncoding:
    """Return the encoding for a name in `ENCODING_NAMES`.

    With `is_base64`, any dtype is written as base64.
    """
    if name == _BASE64:
        return EmbeddingEncoding(OutputDtype.FLOAT, True, float_format)
    return EmbeddingEncoding(OutputDtype(name), is_base64, float_format)


def to_encoding_names(value: JsonValue, field: str) -> tuple[str, ...]:
    """Return the names of encodings in a list, without duplicates."""
    wanted = f"a list of at least one of: {', '.join(ENCODING_NAMES)}"
    items = fields.to_items(value, field, wanted)
    if any(item not in ENCODING_NAMES for item in items):
        raise fields.invalid(field, f"must be {wanted}.")
    return tuple(dict.fromkeys(map(str, items)))


def _to_types(value: JsonValue, field: str) -> tuple[str, ...]:
    if isinstance(value, list):
        return to_encoding_names(value, field)
    return (fields.choice_of(ENCODING_NAMES)(value, field),)


_FORMAT = fields.choice(
    "encoding_format", choices=("float", _BASE64), note="Lists of numbers, or base64 of the bytes."
)
_DTYPE = fields.choice("output_dtype", choices=tuple(OutputDtype), note="The dtype of the embeddings.")


def _types(several: Schema, note: str) -> Field[tuple[str, ...] | None]:
    schema = json_schema.any_of(json_schema.one_of_words(ENCODING_NAMES), several)
    note = f"The same as `output_dtype`, which takes precedence, or base64 of float32.{note}"
    return fields.optional(("embedding_type", "encoding_type"), schema, _to_types, note)


_ONE_TYPE = _types({**ENCODING_LIST, "maxItems": 1}, "")
_TYPES = _types(ENCODING_LIST, " With several, each embedding is an object with one entry for each.")


def _read_encodings(body: RequestBody) -> Mapping[str, EmbeddingEncoding]:
    is_base64, dtype, types = _FORMAT.read(body) == _BASE64, _DTYPE.read(body), _TYPES.read(body)
    names = types or (OutputDtype.FLOAT,) if dtype is None else (dtype,)
    float_format = read_float_format(body)
    return {name: named_encoding(name, is_base64=is_base64, float_format=float_format) for name in names}


def _read_encoding(body: RequestBody) -> EmbeddingEncoding:
    encodings = _read_encodings(body)
    if len(encodings) > 1:
        raise fields.invalid(
            "embedding_type", "must name a single type on this route; /embeddings accepts several."
        )
    return next(iter(encodings.values()))


# The encoding of embeddings: `encoding_format` (OpenAI), `output_dtype` (Voyage, Mistral), `embedding_type`
# or `encoding_type` (Jina), and `embed_dtype` with `endianness` (vLLM).
ENCODING = fields.combined(
    *(_FORMAT, _DTYPE, _ONE_TYPE, FLOAT_TYPE, BYTE_ORDER), read=_read_encoding, absent=EmbeddingEncoding()
)
# One encoding or several, by name.
ENCODINGS: Field[Mapping[str, EmbeddingEncoding]] = fields.combined(
    *(_FORMAT, _DTYPE, _TYPES, FLOAT_TYPE, BYTE_ORDER),
    read=_read_encodings,
    absent=MappingProxyType({str(OutputDtype.FLOAT): EmbeddingEncoding()}),
)


def encode_all(encodings: Mapping[str, EmbeddingEncoding], result: EmbedResult) -> dict[str, Any]:
    """Return the embeddings of `result` in each of `encodings`, by name."""
    return {name: encoding.encode_result(result) for name, encoding in encodings.items()}
