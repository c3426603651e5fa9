"""The kinds of outputs of an engine, and the data types that embeddings are returned in.

Without numpy, so that command lines name them quickly.
"""

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


class OutputDtype(StrEnum):
    """The data type of the numbers of an embedding."""

    FLOAT = "float"  # 32 bits
    INT8 = "int8"  # 256 levels over a fixed range of each dimension, from -128
    UINT8 = "uint8"  # the same levels, from 0
    UBINARY = "ubinary"  # 1 bit: whether the number is above 0; eight to a byte, the first highest
    BINARY = "binary"  # the same bytes, minus 128

    @property
    def dtype(self) -> "np.dtype[np.generic]":
        """The numpy type of one number, or of eight bits; little-endian."""
        import numpy as np

        return np.dtype(_DTYPES[self])

    @property
    def needs_ranges(self) -> bool:
        """Whether the conversion depends on the range of each dimension."""
        return self in (OutputDtype.INT8, OutputDtype.UINT8)

    @property
    def needs_bytes(self) -> bool:
        """Whether the dimensions of an embedding must fill whole bytes."""
        return self in (OutputDtype.BINARY, OutputDtype.UBINARY)


_DTYPES = {
    OutputDtype.FLOAT: "<f4",
    OutputDtype.INT8: "i1",
    OutputDtype.UINT8: "u1",
    OutputDtype.UBINARY: "u1",
    OutputDtype.BINARY: "i1",
}


class Output(StrEnum):
    """An output that a call can ask for, by the name of the output of the graph."""

    USUAL = "rows"  # the output for which the model is made
    HIDDEN_STATES = "token_rows"  # the last hidden state of each token, of an embedding model
    TOKEN_WEIGHTS = "token_weights"  # a weight for each different token: a sparse embedding
    TOKEN_VECTORS = "token_vectors"  # an embedding for each token but the first


class OutputShape(StrEnum):
    """The kind of output that an engine computes for each text."""

    TEXT = "text"  # one embedding
    TOKEN = "token"  # one embedding for each token
    SPARSE = "sparse"  # one sparse embedding
    REST = "rest"  # one embedding, or number, for each token but the first
