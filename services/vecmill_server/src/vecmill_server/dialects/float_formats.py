"""The formats of float embeddings in base64: vLLM's `embed_dtype` and `endianness`."""

import sys
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from vecmill_server.dialects import fields
from vecmill_server.dialects.fields import RequestBody


class FloatType(StrEnum):
    """The type of the numbers, by vLLM's names."""

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
        if array.dtype == np.float32 and self.type is not FloatType.FLOAT32:
            array = _narrow(array, self.type)
        ordered = array.dtype.newbyteorder(">" if self.is_big_endian else "<")
        return array.astype(ordered, copy=False).tobytes()


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
    note="The type of float embeddings in base64. `output_dtype` and `embedding_type` take precedence.",
)
BYTE_ORDER = fields.choice(
    "endianness",
    choices=tuple(_BYTE_ORDERS),
    note="The byte order of float embeddings in base64, by default little.",
)


def read_float_format(body: RequestBody) -> FloatFormat:
    """Return the format that a body asks for. Raises `InvalidRequest`."""
    kind, order = FLOAT_TYPE.read(body), BYTE_ORDER.read(body)
    return FloatFormat(FloatType(kind or FloatType.FLOAT32), _BYTE_ORDERS[order or "little"] == "big")
