"""The embeddings that an engine computes: dense (one for each text, or one for each token) or sparse."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Self

import numpy as np
import numpy.typing as npt

from vecmill.values.aliases import FloatArray, IntArray
from vecmill.values.output_kinds import Output as Output
from vecmill.values.output_kinds import OutputDtype as OutputDtype
from vecmill.values.output_kinds import OutputShape as OutputShape

# The outputs of the heads of `models.heads.TokenHeads`.
HEAD_OUTPUTS = (Output.TOKEN_WEIGHTS, Output.TOKEN_VECTORS)


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

    def is_finite(self) -> bool:
        """Return whether all numbers are finite."""
        for one in (self, *self.others.values()):
            if not np.isfinite(one.values).all():
                return False
            if one.lengths is not None and not np.isfinite(one.lengths).all():
                return False
        return True

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
