"""The encodings of embeddings in responses (JSON numbers or base64 of each dtype), and their fields."""

import binascii
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from vecmill.results import EmbedResult
from vecmill.values.aliases import JsonValue
from vecmill.values.embeddings import OutputDtype
from vecmill.vectors import quantize
from vecmill_server.base import json_schema
from vecmill_server.base.json_schema import Schema
from vecmill_server.dialects import fields
from vecmill_server.dialects.fields import Field, RequestBody


class FloatType(StrEnum):
    """The type of the numbers of a float embedding in base64, by vLLM's names."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FP8_E4M3 = "fp8_e4m3"
    FP8_E5M2 = "fp8_e5m2"


_BYTE_ORDERS = {"native": sys.byteorder, "little": "little", "big": "big"}


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """The bytes of a float embedding: the type of its numbers, and their byte order."""

    type: FloatType = FloatType.FLOAT32
    is_big_endian: bool = False

    def to_bytes(self, array: npt.NDArray[np.generic]) -> bytes:
        """Return the bytes of `array`. Only float32 arrays are converted to `type`."""
        if self.type is not FloatType.FLOAT32 and array.dtype == np.float32:
            array = _narrow(array, self.type)
        if array.dtype.isnative and self.is_big_endian == (sys.byteorder == "big"):
            return array.tobytes()
        ordered = array.dtype.newbyteorder(">" if self.is_big_endian else "<")
        return array.astype(ordered, copy=False).tobytes()

    def to_base64(self, array: npt.NDArray[np.generic]) -> str:
        """Return base64 of the bytes of `array`."""
        data = array.tobytes() if self is _AS_IN_MEMORY else self.to_bytes(array)
        return binascii.b2a_base64(data, newline=False).decode("ascii")


def _narrow(array: npt.NDArray[np.generic], kind: FloatType) -> npt.NDArray[np.generic]:
    """Return the nearest numbers of a narrow type; as integers of the same bits if NumPy lacks the type."""
    if kind is FloatType.FLOAT16:
        with np.errstate(over="ignore"):
            return array.astype(np.float16)
    import ml_dtypes

    if kind is FloatType.BFLOAT16:
        return array.astype(ml_dtypes.bfloat16).view(np.uint16)
    eight_bits = ml_dtypes.float8_e4m3fn if kind is FloatType.FP8_E4M3 else ml_dtypes.float8_e5m2
    return array.astype(eight_bits).view(np.uint8)


FLOAT_TYPE = fields.choice(
    "embed_dtype",
    choices=tuple(FloatType),
    note="The type of float embeddings in base64 and raw bytes. `output_dtype` and `embedding_type` take "
    "precedence.",
)
BYTE_ORDER = fields.choice(
    "endianness",
    choices=tuple(_BYTE_ORDERS),
    note="The byte order of float embeddings in base64 and raw bytes, by default little.",
)


_FLOAT32 = FloatFormat()
# The format whose bytes are those of the array itself, if this machine has one.
_AS_IN_MEMORY = _FLOAT32 if sys.byteorder == "little" else None


def read_float_format(body: RequestBody) -> FloatFormat:
    """Return the format that a body asks for. Raises `InvalidRequest`."""
    kind, order = FLOAT_TYPE.read(body), BYTE_ORDER.read(body)
    return FloatFormat(FloatType(kind or FloatType.FLOAT32), _BYTE_ORDERS[order or "little"] == "big")


_FLOATS, _BASE64 = "float", "base64"


class RawFormat(StrEnum):
    """The values of `encoding_format` for responses of raw bytes, by vLLM's names."""

    BYTES = "bytes"
    BYTES_ONLY = "bytes_only"


_RAW_FORMATS = frozenset(map(str, RawFormat))


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


@dataclass(frozen=True, slots=True)
class EmbeddingEncoding:
    """The encoding of embeddings of one dtype, as lists of numbers or as base64 of their bytes.

    `float_format` is the format of float embeddings in base64 and raw bytes.
    """

    dtype: OutputDtype = OutputDtype.FLOAT
    is_base64: bool = False
    float_format: FloatFormat = _FLOAT32

    def encode(
        self, arrays: Iterable[npt.NDArray[np.generic]]
    ) -> list[str] | Iterable[npt.NDArray[np.generic]]:
        """Encode embeddings, or other arrays, that already have the dtype."""
        return list(map(self.float_format.to_base64, arrays)) if self.is_base64 else arrays

    def encode_result(self, result: EmbedResult) -> list[str] | Iterable[npt.NDArray[np.generic]]:
        """Quantise and encode the embeddings of `result`."""
        is_float = self.dtype is OutputDtype.FLOAT
        rows = result.embeddings if is_float else quantize(result.embeddings, self.dtype, result.ranges)
        return list(map(self.float_format.to_base64, rows)) if self.is_base64 else rows


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
    "encoding_format", choices=(_FLOATS, _BASE64), note="Lists of numbers, or base64 of the bytes."
)
_ANY_FORMAT = fields.choice(
    "encoding_format",
    choices=(_FLOATS, _BASE64, *RawFormat),
    note="Lists of numbers, base64 of the bytes, or a response of raw bytes, with or without the header "
    "`metadata`.",
)
_DTYPE = fields.choice("output_dtype", choices=tuple(OutputDtype), note="The dtype of the embeddings.")


def _types(several: Schema, note: str) -> Field[tuple[str, ...] | None]:
    schema = json_schema.any_of(json_schema.one_of_words(ENCODING_NAMES), several)
    note = f"The same as `output_dtype`, which takes precedence, or base64 of float32.{note}"
    return fields.optional(("embedding_type", "encoding_type"), schema, _to_types, note)


# Raw bytes are embeddings of one type: of `output_dtype`, else `embedding_type`, else `encoding_type`.
_TYPE_OF_RAW_BYTES: Schema = json_schema.any_of(
    json_schema.word(*OutputDtype),
    *({"type": "array", "minItems": 1, "items": json_schema.word(dtype)} for dtype in OutputDtype),
)
ONE_TYPE_IN_RAW_BYTES: Schema = json_schema.any_of(
    {"properties": {"encoding_format": json_schema.one_of_words((_FLOATS, _BASE64))}},
    {"required": ["output_dtype"], "properties": {"output_dtype": json_schema.STRING}},
    {"required": ["embedding_type"], "properties": {"embedding_type": _TYPE_OF_RAW_BYTES}},
    {
        "properties": {
            "embedding_type": json_schema.NOTHING,
            "encoding_type": json_schema.any_of(json_schema.NOTHING, _TYPE_OF_RAW_BYTES),
        }
    },
)


_ONE_TYPE = _types({**ENCODING_LIST, "maxItems": 1}, "")
_TYPES = _types(ENCODING_LIST, " With several, each embedding is an object with one entry for each.")


@dataclass(frozen=True, slots=True)
class Encodings:
    """The encodings of the embeddings in a response, by name, and their dtypes in the same order.

    `encode` encodes a result. The response is raw bytes in the format `raw`, unless that is `None`.
    """

    by_name: Mapping[str, EmbeddingEncoding]
    dtypes: tuple[OutputDtype, ...]
    encode: Callable[[EmbedResult], Iterable[Any]] = field(compare=False)
    raw: RawFormat | None = None

    @classmethod
    def of(cls, by_name: Mapping[str, EmbeddingEncoding], raw: RawFormat | None = None) -> "Encodings":
        """Return these encodings."""
        first, *others = by_name.values()
        encode = partial(_encode_in_all, by_name) if others else first.encode_result
        return cls(by_name, tuple(encoding.dtype for encoding in by_name.values()), encode, raw)


def _encode_in_all(encodings: Mapping[str, EmbeddingEncoding], result: EmbedResult) -> Any:
    return join_encodings(encode_all(encodings, result))


def encode_all(encodings: Mapping[str, EmbeddingEncoding], result: EmbedResult) -> dict[str, Any]:
    """Return the embeddings of `result` in each of `encodings`, by name."""
    return {name: encoding.encode_result(result) for name, encoding in encodings.items()}


def join_encodings(encoded: Mapping[str, Any]) -> Any:
    """Return the values of the only encoding, or of several an object for each input."""
    if len(encoded) == 1:
        return next(iter(encoded.values()))
    return [dict(zip(encoded, each, strict=True)) for each in zip(*encoded.values(), strict=True)]


# The encodings of bodies that ask for no other than the usual dtype and format of floats.
_BY_FORMAT: Mapping[str, Encodings] = {
    _FLOATS: Encodings.of({OutputDtype.FLOAT: EmbeddingEncoding()}),
    _BASE64: Encodings.of({OutputDtype.FLOAT: EmbeddingEncoding(is_base64=True)}),
    **{raw: Encodings.of({OutputDtype.FLOAT: EmbeddingEncoding()}, raw) for raw in RawFormat},
}
_BESIDE_FORMAT = frozenset(
    {*_DTYPE.properties, *_TYPES.properties, *FLOAT_TYPE.properties, *BYTE_ORDER.properties}
)


def _read_encodings(body: RequestBody) -> Encodings:
    usual = body.json.get("encoding_format")
    if isinstance(usual, str) and usual in _BY_FORMAT and body.json.keys().isdisjoint(_BESIDE_FORMAT):
        return _BY_FORMAT[usual]
    format_name, dtype, types = _ANY_FORMAT.read(body), _DTYPE.read(body), _TYPES.read(body)
    names = types or (OutputDtype.FLOAT,) if dtype is None else (dtype,)
    is_base64, float_format = format_name == _BASE64, read_float_format(body)
    by_name = {name: named_encoding(name, is_base64=is_base64, float_format=float_format) for name in names}
    return Encodings.of(by_name, RawFormat(format_name) if format_name in _RAW_FORMATS else None)


def _read_encoding(body: RequestBody) -> EmbeddingEncoding:
    _FORMAT.read(body)  # raw bytes are for dense embeddings of /embeddings alone
    first, *others = _read_encodings(body).by_name.values()
    if others:
        raise fields.invalid(
            "embedding_type", "must name a single type on this route; /embeddings accepts several."
        )
    return first


# The encoding of embeddings: `encoding_format` (OpenAI), `output_dtype` (Voyage, Mistral), `embedding_type`
# or `encoding_type` (Jina), and `embed_dtype` with `endianness` (vLLM).
ENCODING = fields.combined(
    *(_FORMAT, _DTYPE, _ONE_TYPE, FLOAT_TYPE, BYTE_ORDER), read=_read_encoding, absent=EmbeddingEncoding()
)
# One encoding or several, by name.
ENCODINGS = fields.combined(
    *(_ANY_FORMAT, _DTYPE, _TYPES, FLOAT_TYPE, BYTE_ORDER), read=_read_encodings, absent=_BY_FORMAT[_FLOATS]
)
