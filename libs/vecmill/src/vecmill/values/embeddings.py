"""The embeddings that an engine computes: dense (one for each text, or one for each token) or sparse.

`OutputDtype` is the data type that they are returned in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Self

import numpy as np
import numpy.typing as npt

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


class Output(StrEnum):
    """An output that a call can ask for, by the name of the output of the graph."""

    USUAL = "rows"  # the output for which the model is made
    HIDDEN_STATES = "token_rows"  # the last hidden state of each token, of an embedding model
    TOKEN_WEIGHTS = "token_weights"  # a weight for each different token: a sparse embedding
    TOKEN_VECTORS = "token_vectors"  # an embedding for each token but the first


# The outputs of the heads of `models.heads.TokenHeads`.
HEAD_OUTPUTS = (Output.TOKEN_WEIGHTS, Output.TOKEN_VECTORS)


class OutputShape(StrEnum):
    """The kind of output that an engine computes for each text."""

    TEXT = "text"  # one embedding
    TOKEN = "token"  # one embedding for each token
    SPARSE = "sparse"  # one sparse embedding
    REST = "rest"  # one embedding, or number, for each token but the first


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


# One output for one text: (1, dim) or (tokens, dim) float32, with its former length if the model normalises
# it, or a sparse embedding.
SingleEmbedding = FloatArray | SparseEmbedding | UnitEmbedding


@dataclass(frozen=True, slots=True)
class CombinedEmbedding:
    """The usual output for one text, and the other outputs that the same call was asked for."""

    usual: SingleEmbedding
    others: Mapping[Output, SingleEmbedding]


# What a call computed for one text.
Embedding = SingleEmbedding | CombinedEmbedding


@dataclass(frozen=True, slots=True)
class Embeddings:
    """The output of one engine call, as values and offsets.

    Text `i` owns `values[offsets[i]:offsets[i + 1]]`. `values` is float32: (texts, dim) with one embedding
    per text, (tokens, dim) with one embedding per token, or (nonzeros,) for sparse embeddings. For sparse
    embeddings, `columns` (nonzeros,) int64 holds the token ids. `computed_tokens` counts the positions that
    were computed, padding included. If the model normalises the embeddings of texts, `lengths` (texts,)
    float32 are their lengths before the normalisation. `others` are the other outputs that the call was
    asked for besides the usual one.
    """

    values: FloatArray
    offsets: IntArray
    computed_tokens: int
    columns: IntArray | None = None
    lengths: FloatArray | None = None
    others: "Mapping[Output, Embeddings]" = field(default_factory=dict)

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

    def are_finite(self) -> npt.NDArray[np.bool_]:
        """Return whether all numbers of each text are finite: (texts,) bool."""
        # The length of an embedding may exceed float32 where none of its values does.
        finite = np.ones(len(self), np.bool_) if self.lengths is None else np.isfinite(self.lengths)
        if not np.isfinite(self.values).all():
            finite &= [bool(np.isfinite(self.of_text(index)).all()) for index in range(len(self))]
        for other in self.others.values():
            finite &= other.are_finite()
        return finite

    def split(self) -> list[Embedding]:
        """Return the output of each text, in order."""
        usual = self._split_usual()
        if not self.others:
            return [*usual]
        others = zip(*(other._split_usual() for other in self.others.values()), strict=True)
        return [
            CombinedEmbedding(one, dict(zip(self.others, parts, strict=True)))
            for one, parts in zip(usual, others, strict=True)
        ]

    def _split_usual(self) -> Sequence[SingleEmbedding]:
        if self.lengths is not None:
            rows = zip(self.values[:, None], self.lengths.tolist(), strict=True)
            return [UnitEmbedding(values, length) for values, length in rows]
        pairs = pairwise(self.offsets.tolist())
        if self.columns is None:
            return [self.values[start:end] for start, end in pairs]
        return [SparseEmbedding(self.columns[start:end], self.values[start:end]) for start, end in pairs]
