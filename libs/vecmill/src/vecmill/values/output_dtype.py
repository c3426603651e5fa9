"""The data types that embeddings are returned in."""

from enum import StrEnum
from types import MappingProxyType

import numpy as np


class OutputDtype(StrEnum):
    """The data type of the numbers of an embedding."""

    FLOAT = "float"  # 32 bits
    INT8 = "int8"  # 256 levels over a fixed range of each dimension, from -128
    UINT8 = "uint8"  # the same levels, from 0
    UBINARY = "ubinary"  # 1 bit: whether the number is above 0; eight to a byte, the first highest
    BINARY = "binary"  # the same bytes, minus 128

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The numpy type of one number, or of eight bits; little-endian."""
        return np.dtype(_DTYPES[self])

    @property
    def needs_ranges(self) -> bool:
        """Whether the conversion depends on the range of each dimension."""
        return self in (OutputDtype.INT8, OutputDtype.UINT8)

    @property
    def needs_bytes(self) -> bool:
        """Whether the dimensions of an embedding must fill whole bytes."""
        return self in (OutputDtype.BINARY, OutputDtype.UBINARY)


_DTYPES = MappingProxyType(
    {
        OutputDtype.FLOAT: "<f4",
        OutputDtype.INT8: "i1",
        OutputDtype.UINT8: "u1",
        OutputDtype.UBINARY: "u1",
        OutputDtype.BINARY: "i1",
    }
)
