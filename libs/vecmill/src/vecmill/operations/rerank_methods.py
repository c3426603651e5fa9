"""How each kind of model encodes a rerank, and scores what the engine computed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from vecmill.errors import InvalidRequest, RequestTooLarge, fields_renamed
from vecmill.models import Task
from vecmill.models.heads import Similarity
from vecmill.operations.computation import Computation
from vecmill.operations.loaded_model import LoadedModel
from vecmill.operations.token_heads import choose_output, keep_weights
from vecmill.requests import HEAD_WEIGHTS, Purpose, Rerank, TextOptions
from vecmill.tokenization.late_interaction import encode_side_in_slices, keep_tokens, side_prompt
from vecmill.tokenization.pieces import Slices
from vecmill.tokenization.prompts import Prompt
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import TokenSequence
from vecmill.values.embeddings import HEAD_OUTPUTS, Embedding, Output
from vecmill.vectors import (
    activate_logits,
    dense,
    list_scores,
    max_similarity,
    similarity_scores,
    sparse,
    sparse_product,
    stack_embeddings,
)

T = TypeVar("T")


def document_prompt(loaded: LoadedModel) -> Prompt:
    """Return the prompt of each document."""
    options = TextOptions(purpose=Purpose.DOCUMENT)
    if loaded.description.task is Task.MULTI_VECTOR:
        return side_prompt(loaded.description, Purpose.DOCUMENT, options)
    return loaded.prompt(options)


def choose_method(loaded: LoadedModel) -> "RerankMethod":
    """Return the method by which a model ranks documents."""
    if loaded.listwise is not None:
        return _LISTWISE
    return _BY_HEADS if _ranks_by_heads(loaded) else METHODS[loaded.description.task]


def _ranks_by_heads(loaded: LoadedModel) -> bool:
    # An exported graph of finished embeddings ranks by these, as it does everything else.
    return loaded.description.token_heads is not None and not loaded.dispatcher.info.is_finished


def for_each(queries: Sequence[T], count: int) -> Sequence[T]:
    """Return a query for each of `count` documents: its own, or the common one."""
    return queries if len(queries) == count else [queries[0]] * count


def _encode_pairs(loaded: LoadedModel, request: Rerank, prompt: Prompt) -> Slices[list[TokenSequence]]:
    documents, truncation = request.documents, request.options.truncation
    assert loaded.pairs is not None
    pairs = list(zip(for_each(request.queries, len(documents)), documents, strict=True))
    return loaded.pairs.encode_in_slices(pairs, prompt=prompt.text, truncation=truncation)


def _score_logits(loaded: LoadedModel, request: Rerank, done: Computation) -> FloatArray:
    head = loaded.description.head
    assert head is not None
    logits = stack_embeddings(done.embeddings)
    return (logits if request.raw_scores else activate_logits(logits, head.activation))[:, 0]


def _encode_listwise(loaded: LoadedModel, request: Rerank, prompt: Prompt) -> Slices[list[TokenSequence]]:
    assert loaded.listwise is not None
    query, *others = dict.fromkeys(request.queries)
    if others:
        raise InvalidRequest(
            "This model ranks the documents of one query together. Send one query with its documents.",
            field="query",
        )
    sequences = yield from loaded.listwise.encode_in_slices(
        query, request.documents, instruction=prompt.text, truncation=request.options.truncation
    )
    _check_vectors(sequences, loaded.description.dim, "Send fewer documents.")
    return sequences


def _check_vectors(sequences: Sequence[TokenSequence], width: int, hint: str) -> None:
    most = MOST_VECTOR_NUMBERS // width
    if sum(map(len, sequences)) > most:
        raise RequestTooLarge(
            f"`documents` have more than {most} tokens in all, so that the vectors of their tokens take too "
            f"much memory. {hint}",
            field="documents",
        )


def _score_listwise(loaded: LoadedModel, request: Rerank, done: Computation) -> FloatArray:
    lists = loaded.listwise
    assert lists is not None
    pairs = zip(done.sequences, map(dense, done.embeddings), strict=True)
    queries, documents = zip(*(lists.split_rows(*pair) for pair in pairs), strict=True)
    return list_scores(np.stack(queries), documents)


def _encode_texts(loaded: LoadedModel, request: Rerank, prompt: Prompt) -> Slices[list[TokenSequence]]:
    """Encode documents and queries, with separate prompts for documents and queries if the model has them."""
    truncation = request.options.truncation
    documents = yield from loaded.documents.encode_in_slices(
        request.documents, prompt=document_prompt(loaded), truncation=truncation
    )
    with fields_renamed(input="query"):
        queries = yield from loaded.side_of(Purpose.QUERY).encode_in_slices(
            request.queries, prompt=prompt, truncation=truncation
        )
    return [*documents, *queries]


def _score_embeddings(loaded: LoadedModel, request: Rerank, done: Computation) -> FloatArray:
    return _score_dense(loaded, request, done.embeddings)


def _similarities(queries: FloatArray, documents: FloatArray, similarity: Similarity) -> FloatArray:
    if len(queries) == 1:
        return similarity_scores(queries[0], documents, similarity)
    pairs = zip(queries, documents, strict=True)
    return np.concatenate([similarity_scores(query, one[np.newaxis], similarity) for query, one in pairs])


def _score_sparse(loaded: LoadedModel, request: Rerank, done: Computation) -> FloatArray:
    return _score_pairs(list(map(sparse, done.embeddings)), request, sparse_product)


def _encode_sides(loaded: LoadedModel, request: Rerank, prompt: Prompt) -> Slices[list[TokenSequence]]:
    """Encode documents as documents and queries as queries."""
    options = request.options
    encode = partial(encode_side_in_slices, loaded.description, loaded.tokenizer)
    plain = TextOptions(truncation=options.truncation)
    documents = yield from encode(request.documents, Purpose.DOCUMENT, plain)
    with fields_renamed(input="query"):
        return [*documents, *(yield from encode(request.queries, Purpose.QUERY, options, prompt))]


def _score_tokens(loaded: LoadedModel, request: Rerank, done: Computation) -> FloatArray:
    keep, count = partial(keep_tokens, loaded.description, loaded.tokenizer), len(request.documents)
    sided = [
        keep(sequence, embedding, Purpose.DOCUMENT if index < count else Purpose.QUERY)
        for index, (sequence, embedding) in enumerate(zip(done.sequences, done.embeddings, strict=True))
    ]
    return _score_pairs(sided, request, max_similarity)


# Vectors are kept until all texts of the request are computed. So many take 512 MB.
MOST_VECTOR_NUMBERS = 2**27


def _weigh_outputs(request: Rerank) -> dict[Output, float]:
    """Return the shares of the outputs in a score, without those of no weight."""
    weights = request.weights or HEAD_WEIGHTS
    pairs = zip((Output.USUAL, *HEAD_OUTPUTS), weights, strict=True)
    return {output: weight / sum(weights) for output, weight in pairs if weight}


def _encode_for_heads(loaded: LoadedModel, request: Rerank, prompt: Prompt) -> Slices[list[TokenSequence]]:
    sequences = yield from _encode_texts(loaded, request, prompt)
    outputs = _weigh_outputs(request)
    if Output.TOKEN_VECTORS in outputs:
        hint = "Send them in parts, or with `weights` of which the last is 0."
        _check_vectors(sequences, loaded.description.encoder.hidden_size, hint)
    return [sequence.asking(*outputs) for sequence in sequences]


def _score_heads(loaded: LoadedModel, request: Rerank, done: Computation) -> FloatArray:
    """Return the weighted means of the three scores, as FlagEmbedding's `M3Embedder.compute_score` does."""
    scores = [
        share
        * _HEAD_SCORES[output](loaded, request, [choose_output(each, output) for each in done.embeddings])
        for output, share in _weigh_outputs(request).items()
    ]
    return np.asarray(np.sum(scores, axis=0, dtype=np.float64), np.float32)


def _score_dense(loaded: LoadedModel, request: Rerank, found: Sequence[Embedding]) -> FloatArray:
    embeddings, count = stack_embeddings(found), len(request.documents)
    return _similarities(embeddings[count:], embeddings[:count], loaded.description.similarity)


def _score_weights(loaded: LoadedModel, request: Rerank, found: Sequence[Embedding]) -> FloatArray:
    kept = [keep_weights(loaded.description, loaded.tokenizer, each) for each in found]
    return _score_pairs(kept, request, sparse_product)


def _score_vectors(loaded: LoadedModel, request: Rerank, found: Sequence[Embedding]) -> FloatArray:
    def score(query: FloatArray, document: FloatArray) -> np.float32:
        return max_similarity(query, document) / np.float32(max(1, len(query)))

    return _score_pairs(list(map(dense, found)), request, score)


def _score_pairs(found: Sequence[T], request: Rerank, score: Callable[[T, T], np.float32]) -> FloatArray:
    """Return the score of each document; `found` belong to the documents, and then to the queries."""
    count = len(request.documents)
    pairs = zip(for_each(found[count:], count), found[:count], strict=True)
    return np.array([score(query, document) for query, document in pairs], np.float32)


_HEAD_SCORES = {
    Output.USUAL: _score_dense,
    Output.TOKEN_WEIGHTS: _score_weights,
    Output.TOKEN_VECTORS: _score_vectors,
}


# The fixed time of a score, as numbers.
_SCORE_NUMBERS = 10_000


def _count_scores(loaded: LoadedModel, request: Rerank, done: Computation) -> int:
    return len(request.documents)


def _count_dimensions(loaded: LoadedModel, request: Rerank, done: Computation) -> int:
    fixed = _SCORE_NUMBERS * (len(request.queries) - 1)  # a common query takes one call for all documents
    return len(done.embeddings) * loaded.description.dim + fixed


def _count_weights(loaded: LoadedModel, request: Rerank, done: Computation) -> int:
    weights = sum(len(sparse(embedding).columns) for embedding in done.embeddings)
    return weights + _SCORE_NUMBERS * len(request.documents)


def _count_products(loaded: LoadedModel, request: Rerank, done: Computation) -> int:
    return done.token_count * loaded.description.dim + _SCORE_NUMBERS * len(request.documents)


@dataclass(frozen=True, slots=True)
class RerankMethod:
    """The method by which models of one task rank documents. `encode` gets the prompt of the queries."""

    encode: Callable[[LoadedModel, Rerank, Prompt], Slices[list[TokenSequence]]]
    score: Callable[[LoadedModel, Rerank, Computation], FloatArray]
    numbers: Callable[[LoadedModel, Rerank, Computation], int]


METHODS = {
    Task.RERANK: RerankMethod(_encode_pairs, _score_logits, _count_scores),
    Task.EMBED: RerankMethod(_encode_texts, _score_embeddings, _count_dimensions),
    Task.SPARSE: RerankMethod(_encode_texts, _score_sparse, _count_weights),
    Task.MULTI_VECTOR: RerankMethod(_encode_sides, _score_tokens, _count_products),
}


# The method of a model that reads a query and its documents together.
_LISTWISE = RerankMethod(_encode_listwise, _score_listwise, _count_products)


# The method of a model with token heads. Products of token vectors outweigh the other scores.
_BY_HEADS = RerankMethod(_encode_for_heads, _score_heads, _count_products)
