"""Arithmetic on finished embeddings: stacking, normalisation, truncation, quantisation, and scores."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from vecmill.errors import InvalidRequest
from vecmill.models.heads import Activation, Similarity
from vecmill.values.aliases import FloatArray
from vecmill.values.embeddings import Embedding, OutputDtype, SparseEmbedding, UnitEmbedding


def dense(embedding: Embedding) -> FloatArray:
    """Return an embedding that is known to be dense, normalised if the model normalises."""
    if isinstance(embedding, UnitEmbedding):
        return embedding.values
    assert isinstance(embedding, np.ndarray), "a sparse embedding"
    return embedding


def sparse(embedding: Embedding) -> SparseEmbedding:
    """Return an embedding that is known to be sparse."""
    assert isinstance(embedding, SparseEmbedding), "a dense embedding"
    return embedding


def stack_embeddings(embeddings: Sequence[Embedding]) -> FloatArray:
    """Join the (1, dim) embeddings of several texts into (texts, dim), float32, C-contiguous."""
    return np.concatenate(list(map(dense, embeddings)))


def stack_raw_embeddings(embeddings: Sequence[Embedding]) -> FloatArray:
    """Join the embeddings of several texts as they were before the model's own normalisation."""
    lengths = [one.length if isinstance(one, UnitEmbedding) else 1.0 for one in embeddings]
    raw: FloatArray = stack_embeddings(embeddings) * np.array(lengths, np.float32)[:, None]
    return raw


def normalize_embeddings(embeddings: FloatArray) -> FloatArray:
    """Scale each embedding of (n, dim) to length 1. Embeddings of zeros stay zeros."""
    return scale_to_unit(embeddings)[0]


def scale_to_unit(embeddings: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the embeddings (n, dim) scaled to length 1, and their lengths (n,), which are never 0."""
    lengths = np.maximum(np.linalg.norm(embeddings, axis=1), np.float32(1e-12))
    normalized: FloatArray = np.divide(embeddings, lengths[:, None], dtype=np.float32)
    return normalized, lengths


def truncate_embeddings(embeddings: FloatArray, dimensions: int, *, normalize: bool) -> FloatArray:
    """Keep the first `dimensions` of (n, dim), C-contiguous. If `normalize`, scale to length 1 again.

    Matryoshka models are trained for such truncation (Kusupati et al. 2022, arXiv:2205.13147).
    """
    truncated = np.ascontiguousarray(embeddings[:, :dimensions])
    return normalize_embeddings(truncated) if normalize else truncated


def finish_embeddings(
    embeddings: FloatArray, dimensions: int | None, normalize: bool | None, is_normalized: bool
) -> FloatArray:
    """Truncate embeddings to `dimensions`, and normalise them if the model or the request says so.

    `is_normalized` tells whether the model normalises. If `normalize` is false, nothing is normalised:
    `embeddings` are then those of `stack_raw_embeddings`.
    """
    wants_unit = is_normalized if normalize is None else normalize
    if dimensions is not None and dimensions < embeddings.shape[1]:
        return truncate_embeddings(embeddings, dimensions, normalize=wants_unit)
    return normalize_embeddings(embeddings) if wants_unit and not is_normalized else embeddings


def finish_dense(
    embeddings: Sequence[Embedding], dimensions: int | None, normalize: bool | None, is_normalized: bool
) -> FloatArray:
    """Join computed embeddings into one array, (texts, dim) float32, as a request asks for them.

    See `finish_embeddings`.
    """
    if normalize is False:
        rows = stack_raw_embeddings(embeddings)
    else:
        rows = stack_embeddings(embeddings)
        if normalize is None and dimensions is None:
            return rows
    return finish_embeddings(rows, dimensions, normalize, is_normalized)


def find_ranges(embeddings: FloatArray) -> FloatArray:
    """Return the minimum and the maximum of each dimension of (n, dim): (2, dim)."""
    ranges: FloatArray = np.stack([embeddings.min(axis=0), embeddings.max(axis=0)])
    return ranges


def quantize(
    embeddings: FloatArray, dtype: OutputDtype | str, ranges: FloatArray | None = None
) -> npt.NDArray[np.generic]:
    """Convert (n, dim) float32 to `dtype`: (n, dim), or (n, dim / 8) for binary types.

    int8 and uint8 divide the `ranges` (2, dim) into 256 levels, and clip values outside the ranges. Bits that
    do not fill a byte are padded with zeros. Source: sentence-transformers 6.2 (`quantize_embeddings`).
    Cohere uses the same bit order. Raises `InvalidRequest` for another `dtype`, or without ranges.
    """
    if not isinstance(dtype, OutputDtype):
        if dtype not in list(OutputDtype):
            raise InvalidRequest(f"`dtype` must be one of {', '.join(OutputDtype)}.", field="dtype")
        dtype = OutputDtype(dtype)
    if dtype is OutputDtype.FLOAT:
        return embeddings
    if dtype.needs_bytes:
        packed = np.packbits(embeddings > 0, axis=-1)
        return packed if dtype is OutputDtype.UBINARY else (packed.astype(np.int16) - 128).astype(np.int8)
    if ranges is None:
        raise InvalidRequest(
            "int8 and uint8 need `ranges`: those of the model are `result.ranges` of an `Embed` for it.",
            field="ranges",
        )
    if ranges.shape != (2, embeddings.shape[-1]):
        raise InvalidRequest(
            f"`ranges` has the shape {ranges.shape}; embeddings of {embeddings.shape[-1]} dimensions need "
            f"(2, {embeddings.shape[-1]}): those of a request with the same `dimensions`.",
            field="ranges",
        )
    low, high = ranges
    steps = (high - low) / 255
    steps[steps == 0] = 1
    levels: FloatArray = np.clip(np.floor((embeddings - low) / steps), 0, 255)
    return levels.astype(np.uint8) if dtype is OutputDtype.UINT8 else (levels - 128).astype(np.int8)


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


def list_scores(queries: FloatArray, documents: Sequence[FloatArray]) -> FloatArray:
    """Return the cosine of each document with the query, for lists that were computed one by one.

    `queries` (lists, dim) are the vectors of the query, one from each list, and `documents` those of the
    documents of each list, (documents, dim). The vector of the query is the mean of `queries`, weighted by
    the highest score within each list, which (1 + cosine) / 2 moves to 0 to 1. Source: `rerank` of
    jina-reranker-v3.
    """
    bests = [cosine_scores(query, found).max() for query, found in zip(queries, documents, strict=True)]
    weights = (1 + np.array(bests, np.float64)) / 2
    # Only if every document points away from the query, all weights are 0.
    query = np.average(queries, axis=0, weights=weights if weights.sum() > 0 else None)
    return cosine_scores(query.astype(np.float32), np.concatenate(documents))


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
