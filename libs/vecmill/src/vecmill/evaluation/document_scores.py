"""Scores of queries with blocks of documents, by kind of embedding.

Dense embeddings are compared by matrix products. Sparse ones are turned round: for each column the documents
that have it, so that a query costs as much as the weights that it meets. Of multi-vector embeddings each
vector of a query takes its best product with a vector of the document (MaxSim).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from vecmill.errors import InvalidRequest
from vecmill.models.heads import Similarity
from vecmill.values.aliases import FloatArray
from vecmill.values.embeddings import SparseEmbedding
from vecmill.vectors import similarity_scores

# Integers up to here are exact in float32.
_EXACT_IN_FLOAT32 = 2**24


def score_dense(queries: FloatArray, documents: FloatArray, similarity: Similarity) -> FloatArray:
    """Return scores (queries, documents) float32 in the order of `similarity`, higher is better.

    For the cosine both must have unit length.
    """
    if similarity is Similarity.MANHATTAN:
        return np.stack([similarity_scores(query, documents, similarity) for query in queries])
    products: FloatArray = queries @ documents.T
    if similarity is Similarity.EUCLIDEAN:  # |q - d|^2 without |q|^2, which is the same for all documents
        products = 2 * products - np.square(documents).sum(axis=1)[None]
    return products


def score_dense_exactly(
    query: FloatArray, documents: FloatArray, similarity: Similarity
) -> npt.NDArray[np.float64]:
    """Return the scores (documents,) float64 of one query. Equal documents get equal scores."""
    # BLAS adds up in an order that depends on where a row stands, and ties would not tie.
    exact, others = query.astype(np.float64)[None], documents.astype(np.float64)
    if similarity is Similarity.MANHATTAN:
        found = -np.abs(others - exact).sum(axis=1)
    elif similarity is Similarity.EUCLIDEAN:
        found = -np.square(others - exact).sum(axis=1)
    else:
        found = (others * exact).sum(axis=1)
    return np.asarray(found, np.float64)


def score_integers(
    queries: npt.NDArray[np.generic], documents: npt.NDArray[np.generic], similarity: Similarity
) -> npt.NDArray[np.floating]:
    """Return scores (queries, documents) of 8-bit integers in the order of `similarity`.

    Products are exact, and equal documents get equal scores.
    """
    if similarity is Similarity.MANHATTAN:
        wide = documents.astype(np.float32)
        return np.stack([similarity_scores(query.astype(np.float32), wide, similarity) for query in queries])
    largest = 255 * 255 if queries.dtype == np.uint8 else 128 * 128
    is_exact = largest * queries.shape[1] < _EXACT_IN_FLOAT32
    dtype = np.dtype(np.float32 if is_exact else np.float64)
    products: npt.NDArray[np.floating] = queries.astype(dtype) @ documents.astype(dtype).T
    if similarity is Similarity.DOT:
        return products
    squares = np.square(documents.astype(np.float64)).sum(axis=1)[None]
    if similarity is Similarity.EUCLIDEAN:
        return np.asarray(2 * products - squares)
    # The length of the query is the same for all documents.
    return np.asarray(products / np.sqrt(np.maximum(squares, 1)))


def score_bits(queries: npt.NDArray[np.uint8], documents: npt.NDArray[np.uint8]) -> FloatArray:
    """Return the negated Hamming distances (queries, documents) of packed bits, exact."""
    # Equal bits give 1 and others -1.
    signs = [np.unpackbits(packed, axis=1).astype(np.float32) * 2 - 1 for packed in (queries, documents)]
    agreement: FloatArray = signs[0] @ signs[1].T
    return (agreement - np.float32(signs[0].shape[1])) / np.float32(2)


class SparseBlock:
    """The sparse embeddings of a block of documents, by column."""

    def __init__(self, documents: Sequence[SparseEmbedding]) -> None:
        self._count = len(documents)
        sizes = [len(one.columns) for one in documents]
        columns = np.concatenate([one.columns for one in documents]) if documents else np.empty(0, np.int64)
        by_column = np.argsort(columns, kind="stable")
        self._columns = columns[by_column]
        self._owners = np.repeat(np.arange(len(documents)), sizes)[by_column]
        values = np.concatenate([one.values for one in documents]) if documents else np.empty(0, np.float32)
        self._values = values[by_column]

    def score(self, queries: Sequence[SparseEmbedding]) -> FloatArray:
        """Return the dot products (queries, documents) float32."""
        scores = np.zeros((len(queries), self._count))
        for row, query in zip(scores, queries, strict=True):
            begins = np.searchsorted(self._columns, query.columns, "left")
            ends = np.searchsorted(self._columns, query.columns, "right")
            for begin, end, weight in zip(begins, ends, query.values, strict=True):
                # A document has a column once.
                row[self._owners[begin:end]] += np.float64(weight) * self._values[begin:end]
        return scores.astype(np.float32)


class TokenBlock:
    """The vectors of the tokens of a block of documents."""

    def __init__(self, documents: Sequence[FloatArray]) -> None:
        sizes = np.array([len(one) for one in documents], np.int64)
        self._has_tokens = sizes > 0
        self._starts = (np.cumsum(sizes) - sizes)[self._has_tokens]
        self._vectors = np.concatenate(documents) if len(documents) else np.empty((0, 0), np.float32)

    def score(self, queries: Sequence[FloatArray], *, as_mean: bool = False) -> FloatArray:
        """Return, as (queries, documents) float32, the sum of the best products of each query's vectors.

        With `as_mean` their mean, as models with the heads of BGE-M3 score. Documents without tokens get 0.
        """
        scores = np.zeros((len(queries), len(self._has_tokens)), np.float32)
        if not len(self._starts):
            return scores
        for row, query in zip(scores, queries, strict=True):
            best = np.maximum.reduceat(query @ self._vectors.T, self._starts, axis=1).sum(axis=0)
            row[self._has_tokens] = best / max(1, len(query)) if as_mean else best
        return scores


def mix_scores(scores: Sequence[FloatArray], weights: Sequence[float]) -> FloatArray:
    """Return the weighted mean of several arrays of scores. Raises `InvalidRequest` for weights of sum 0."""
    total = sum(weights)
    if total <= 0 or min(weights) < 0:
        raise InvalidRequest("`weights` must be at least 0, and one of them above 0.", field="weights")
    mixed = sum(np.float64(weight / total) * one for one, weight in zip(scores, weights, strict=True))
    return np.asarray(mixed, np.float32)
