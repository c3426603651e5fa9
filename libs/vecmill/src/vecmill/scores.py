"""Scores of logits and of rows: activations, cosines, products, the best matches of tokens."""

import numpy as np

from vecmill.models.heads import Activation, Similarity
from vecmill.rows import normalize_rows
from vecmill.types import FloatArray, SparseRow


def activate_logits(logits: FloatArray, activation: Activation) -> FloatArray:
    """Scores of logits (n, labels), float32. Softmax is over the labels."""
    match activation:
        case Activation.IDENTITY:
            return logits
        case Activation.SIGMOID:
            return sigmoid(logits)
        case Activation.SOFTMAX:
            return softmax(logits)


def sigmoid(logits: FloatArray) -> FloatArray:
    """1 / (1 + exp(-x)) of each logit, float32."""
    scores: FloatArray = (0.5 * (1 + np.tanh(0.5 * logits.astype(np.float64)))).astype(np.float32)
    return scores


def softmax(logits: FloatArray) -> FloatArray:
    """The shares of exp(x) in their row of (n, labels), float32."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares: FloatArray = powers / powers.sum(axis=-1, keepdims=True)
    return shares


def similarity_scores(query: FloatArray, documents: FloatArray, similarity: Similarity) -> FloatArray:
    """How alike one (dim,) row is to each of (n, dim) rows: (n,), float32; more is better.

    Equal rows get equal scores. Distances are negated, as sentence-transformers does (`util/similarity.py`).
    """
    if similarity is Similarity.COSINE:
        return cosine_scores(query, documents)
    if similarity is Similarity.DOT:
        scores: FloatArray = (documents * query[None]).sum(axis=1)
        return scores
    distances = np.abs(documents - query[None])
    if similarity is Similarity.EUCLIDEAN:
        distances = np.square(distances)
    total: FloatArray = distances.sum(axis=1)
    return -np.sqrt(total) if similarity is Similarity.EUCLIDEAN else -total


def cosine_scores(query: FloatArray, documents: FloatArray) -> FloatArray:
    """Cosines of one (dim,) row and (n, dim) rows: (n,), float32. Equal rows get equal scores."""
    # Not `@`: BLAS adds up in an order that depends on where a row stands, and ties would not tie.
    cosines = (normalize_rows(documents) * normalize_rows(query[None])).sum(axis=1)
    scores: FloatArray = np.clip(cosines, -1, 1, dtype=np.float32)
    return scores


def sparse_product(query: SparseRow, document: SparseRow) -> np.float32:
    """The dot product of two sparse rows, by which sentence-transformers' `SparseEncoder` compares them."""
    _, ours, theirs = np.intersect1d(query.columns, document.columns, assume_unique=True, return_indices=True)
    return np.float32(query.values[ours] @ document.values[theirs])


def max_similarity(query: FloatArray, document: FloatArray) -> np.float32:
    """The sum, over the rows of `query`, of the largest product with a row of `document`.

    Both are (tokens, dim); a document without rows gets 0. (Khattab and Zaharia 2020, arXiv:2004.12832.)
    """
    if not len(document):
        return np.float32(0)
    return np.float32((query @ document.T).max(axis=1).sum())


def cosine_at(difference: float, scale: float) -> float:
    """What a difference of scores means as a cosine, so that both can be held to one bound.

    A row of length 1 that is off by d has the cosine 1 - d^2 / 2. Scores beyond 1 are measured by their
    `scale`, the largest there is.
    """
    return 1 - (difference / max(1.0, scale)) ** 2 / 2
