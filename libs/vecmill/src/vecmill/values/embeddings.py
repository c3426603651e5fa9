"""The embeddings that an engine computes: dense (one for each text, or one for each token) or sparse.

`OutputDtype` is the data type that they are returned in.
"""

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Self

import numpy as np

from vecmill.values.aliases import FloatArray, IntArray


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


_DTYPES = {
    OutputDtype.FLOAT: "<f4",
    OutputDtype.INT8: "i1",
    OutputDtype.UINT8: "u1",
    OutputDtype.UBINARY: "u1",
    OutputDtype.BINARY: "i1",
}

# The name of the second output of the graphs of embedding models: the last hidden state of each token.
TOKEN_OUTPUT = "token_rows"


class OutputShape(StrEnum):
    """The kind of output that an engine computes for each text."""

    TEXT = "text"  # one embedding
    TOKEN = "token"  # one embedding for each token
    SPARSE = "sparse"  # one sparse embedding


@dataclass(frozen=True, slots=True)
class SparseEmbedding:
    """The nonzero weights of an embedding over the vocabulary.

    `columns` (nonzeros,) int64 are token ids, ascending; `values` (nonzeros,) float32 their weights.
    """

    columns: IntArray
    values: FloatArray


@dataclass(frozen=True, slots=True)
class UnitEmbedding:
    """An embedding (1, dim) float32 of unit length. `length` is its length before the normalisation."""

    values: FloatArray
    length: float


# The output for one text: (1, dim) or (tokens, dim) float32, with its former length if the model normalises
# it, or a sparse embedding.
Embedding = FloatArray | SparseEmbedding | UnitEmbedding


@dataclass(frozen=True, slots=True)
class Embeddings:
    """The output of one engine call, as values and offsets.

    Text `i` owns `values[offsets[i]:offsets[i + 1]]`. `values` is float32: (texts, dim) with one embedding
    per text, (tokens, dim) with one embedding per token, or (nonzeros,) for sparse embeddings. For sparse
    embeddings, `columns` (nonzeros,) int64 holds the token ids. `computed_tokens` counts the positions that
    were computed, padding included. If the model normalises the embeddings of texts, `lengths` (texts,)
    float32 are their lengths before the normalisation.
    """

    values: FloatArray
    offsets: IntArray
    computed_tokens: int
    columns: IntArray | None = None
    lengths: FloatArray | None = None

    @classmethod
    def one_per_text(
        cls, values: FloatArray, *, computed_tokens: int, lengths: FloatArray | None = None
    ) -> Self:
        """Make the output where text `i` owns `values[i]`."""
        offsets = np.arange(len(values) + 1, dtype=np.int64)
        return cls(values, offsets, computed_tokens, lengths=lengths)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def of_text(self, index: int) -> FloatArray:
        """Return the values of text `index`: (its embeddings, dim), or (nonzeros,) if sparse."""
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def split(self) -> list[Embedding]:
        """Return the output of each text, in order."""
        if self.lengths is not None:
            rows = zip(self.values[:, None], self.lengths.tolist(), strict=True)
            return [UnitEmbedding(values, length) for values, length in rows]
        pairs = pairwise(self.offsets.tolist())
        if self.columns is None:
            return [self.values[start:end] for start, end in pairs]
        return [SparseEmbedding(self.columns[start:end], self.values[start:end]) for start, end in pairs]
