"""Dense vectors in the forms in which stores keep them: fewer dimensions, 8-bit integers, bits.

A vector store compares 8-bit integers by the distance of its collection, which is that of the model, and bits
by their Hamming distance, both without the floats that they were made of. Queries are converted as well.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from vecmill.errors import InvalidConfig
from vecmill.evaluation.document_scores import (
    score_bits,
    score_dense,
    score_dense_exactly,
    score_integers,
)
from vecmill.evaluation.exact_search import DocumentOrder, ScoreBlock, find_best, rank_documents
from vecmill.models.heads import Similarity
from vecmill.values.aliases import FloatArray, IntArray
from vecmill.values.output_kinds import OutputDtype
from vecmill.vectors import find_ranges, finish_embeddings, normalize_embeddings, quantize

# Documents beyond the depth of a search whose products are near those within it.
_MARGIN = 64


@dataclass(frozen=True, slots=True)
class DenseForm:
    """The form of dense vectors: their dimensions, `None` for all, and their type."""

    dimensions: int | None = None
    dtype: OutputDtype = OutputDtype.FLOAT

    def count_bytes(self, dim: int) -> int:
        """Return the bytes of a vector of a model of `dim` dimensions."""
        numbers = self.dimensions or dim
        return -(-numbers // 8) if self.dtype.needs_bytes else numbers * self.dtype.dtype.itemsize

    def check(self, dim: int, model: str) -> None:
        """Raise `InvalidConfig` if a model of `dim` dimensions has no such vectors."""
        if self.dimensions is not None and not 1 <= self.dimensions <= dim:
            raise InvalidConfig(
                f"{model} has {dim} dimensions, so its vectors cannot have {self.dimensions}."
            )
        if self.dtype.needs_bytes and (self.dimensions or dim) % 8:
            raise InvalidConfig(
                f"Binary vectors need a multiple of 8 dimensions, not {self.dimensions or dim} as of {model}."
            )


@dataclass(frozen=True, slots=True)
class DenseVectors:
    """The dense vectors of all queries and documents of one model, (n, dim) float32 each.

    `find_ranges` returns the ranges for 8-bit integers of so many dimensions, `None` if the model has none of
    its own: they are then those of the documents.
    """

    queries: FloatArray
    documents: FloatArray
    similarity: Similarity
    is_normalized: bool
    find_ranges: Callable[[int | None], FloatArray | None] = lambda dimensions: None

    def search(
        self, form: DenseForm, order: DocumentOrder, depth: int, without: IntArray | None = None
    ) -> list[IntArray]:
        """Return the numbers of the best documents of each query, the best first."""
        sides = [
            finish_embeddings(rows, form.dimensions, None, self.is_normalized)
            for rows in (self.queries, self.documents)
        ]
        if form.dtype is OutputDtype.FLOAT:
            return self._search_floats(sides, order, depth, without)
        ranges = self._ranges(form, sides[1])
        # The bits are the same in both binary types.
        kind = OutputDtype.UBINARY if form.dtype.needs_bytes else form.dtype
        queries, documents = (quantize(rows, kind, ranges) for rows in sides)
        score = _score_numbers(queries, documents, kind, self.similarity)
        return find_best(score, order, len(queries), depth, without)

    def _search_floats(
        self, sides: Sequence[FloatArray], order: DocumentOrder, depth: int, without: IntArray | None
    ) -> list[IntArray]:
        """Search by products of blocks, and order what is near the top by exact ones."""
        similarity = self.similarity
        if similarity is Similarity.COSINE and not self.is_normalized:
            sides = [normalize_embeddings(rows) for rows in sides]
        queries, documents = sides

        def score(some: slice, block: slice) -> FloatArray:
            return score_dense(queries[some], documents[block], similarity)

        near = find_best(score, order, len(queries), depth + _MARGIN, without)
        return [
            rank_documents(order, found, score_dense_exactly(query, documents[found], similarity))[:depth]
            for query, found in zip(queries, near, strict=True)
        ]

    def _ranges(self, form: DenseForm, documents: FloatArray) -> FloatArray | None:
        if not form.dtype.needs_ranges:
            return None
        found = self.find_ranges(form.dimensions)
        return find_ranges(documents) if found is None else found


def _score_numbers(
    queries: npt.NDArray[np.generic],
    documents: npt.NDArray[np.generic],
    kind: OutputDtype,
    similarity: Similarity,
) -> ScoreBlock:
    if kind.needs_bytes:
        packed = cast(npt.NDArray[np.uint8], queries), cast(npt.NDArray[np.uint8], documents)
        return lambda some, block: score_bits(packed[0][some], packed[1][block])
    return lambda some, block: score_integers(queries[some], documents[block], similarity)
