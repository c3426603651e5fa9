"""Scores from logits and from embeddings: activations, cosines, dot products and best token matches."""

import numpy as np

from vecmill.models.heads import Activation, Similarity
from vecmill.values.aliases import FloatArray
from vecmill.values.embeddings import SparseEmbedding
from vecmill.vectors.transforms import normalize_embeddings


def activate_logits(logits: FloatArray, activation: Activation) -> FloatArray:
    """Apply an activation function to logits (n, labels), float32. Softmax is computed over the labels."""
    match activation:
        case Activation.IDENTITY:
            return logits
        case Activation.SIGMOID:
            return sigmoid(logits)
        case Activation.SIGMOID_OF_FIFTH:
            return sigmoid(logits / np.float32(5))
        case Activation.SOFTMAX:
            return softmax(logits)


def sigmoid(logits: FloatArray) -> FloatArray:
    """Return 1 / (1 + exp(-x)) of each logit, float32."""
    scores: FloatArray = (0.5 * (1 + np.tanh(0.5 * logits.astype(np.float64)))).astype(np.float32)
    return scores


def softmax(logits: FloatArray) -> FloatArray:
    """Return the softmax over the last axis of (n, labels), float32."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares: FloatArray = powers / powers.sum(axis=-1, keepdims=True)
    return shares


def similarity_scores(query: FloatArray, documents: FloatArray, similarity: Similarity) -> FloatArray:
    """Return the similarity of a (dim,) vector to each of n (n, dim) vectors: (n,) float32; higher is better.

    Equal vectors get equal scores. Distances are negated, as in sentence-transformers (`util/similarity.py`).
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
    """Return the cosines of a (dim,) vector with each of n (n, dim) vectors: (n,) float32.

    Equal vectors get equal scores.
    """
    # Not `@`: BLAS adds up in an order that depends on where a row stands, and ties would not tie.
    cosines = (normalize_embeddings(documents) * normalize_embeddings(query[None])).sum(axis=1)
    scores: FloatArray = np.clip(cosines, -1, 1, dtype=np.float32)
    return scores


def sparse_product(query: SparseEmbedding, document: SparseEmbedding) -> np.float32:
    """Return the dot product of two sparse embeddings, as sentence-transformers' `SparseEncoder` does."""
    _, ours, theirs = np.intersect1d(query.columns, document.columns, assume_unique=True, return_indices=True)
    return np.float32(query.values[ours] @ document.values[theirs])


def max_similarity(query: FloatArray, document: FloatArray) -> np.float32:
    """Return the sum, over the vectors of `query`, of the largest product with a vector of `document`.

    Both are (tokens, dim); a document without tokens gets 0. (Khattab and Zaharia 2020, arXiv:2004.12832.)
    """
    if not len(document):
        return np.float32(0)
    return np.float32((query @ document.T).max(axis=1).sum())


def cosine_at(difference: float, scale: float) -> float:
    """Convert a difference of scores to a cosine, so that scores and embeddings share one accuracy limit.

    A vector of length 1 with an error of length d has the cosine 1 - d^2 / 2. If scores exceed 1, the
    difference is divided by `scale`, the largest score.
    """
    return 1 - (difference / max(1.0, scale)) ** 2 / 2
