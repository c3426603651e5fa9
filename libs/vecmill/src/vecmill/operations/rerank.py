"""The `Rerank` request: scores of documents for queries, by any model that can compare them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from vecmill.errors import InvalidRequest, RequestTooLarge, fields_renamed
from vecmill.models import Task
from vecmill.models.heads import Similarity
from vecmill.operations.capabilities import require_heads, require_task, require_unfinished
from vecmill.operations.computation import Computation, Work, compute
from vecmill.operations.loaded_model import LoadedModel
from vecmill.operations.token_heads import choose_output, keep_weights
from vecmill.requests import HEAD_WEIGHTS, Caller, Purpose, Rerank, TextOptions
from vecmill.results import RerankResult
from vecmill.tokenization.late_interaction import encode_side_in_slices, keep_tokens, side_prompt
from vecmill.tokenization.pieces import Slices
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import TokenSequence
from vecmill.values.cuts import TextCut
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


async def rerank(loaded: LoadedModel, request: Rerank, caller: Caller) -> RerankResult:
    """Return a score for each document, either for one common query or for a query of its own.

    Raises the same errors as `Mill.run`.
    """
    task, queries, documents = loaded.description.task, request.queries, request.documents
    require_task(loaded.description, *_METHODS, asked="rank documents")
    _check_counts(queries, documents)
    _check_weights(request, loaded)
    options = replace(request.options, truncation=loaded.truncation(request.options))
    if task is not Task.RERANK:
        options = replace(options, purpose=Purpose.QUERY)
    prompt = choose_prompt(loaded, options, request.instruction)
    request = replace(request, options=replace(options, prompt=prompt, prompt_name=None))
    method = _choose_method(loaded)
    with fields_renamed(input="documents"):
        work = Work(
            loaded.documents,
            # The queries go last, so that `documents[3]` in an error is the fourth document.
            [*_document_sizes(loaded, request), *(len(query) + len(prompt) for query in queries)],
            lambda: _encode(loaded, request, method),
            options.truncation,
            uncounted=len(queries),
            shared_size=_shared_size(loaded, request),
        )
        done = await compute(loaded, work, caller)
    numbers = method.numbers(loaded, request, done)
    scores = await loaded.results.run_if_large(lambda: method.score(loaded, request, done), numbers)
    return RerankResult(scores, done.token_count, done.timings, done.truncated)


def _encode(loaded: LoadedModel, request: Rerank, method: "_RerankMethod") -> Slices[list[TokenSequence]]:
    cut = yield from _truncate_texts(loaded, request)
    sequences = yield from method.encode(loaded, cut.request)
    return _add_cuts(sequences, cut)


def _document_sizes(loaded: LoadedModel, request: Rerank) -> list[int]:
    """Return the number of characters of each document, with its prompt.

    A template puts the query and its prompt into the text of each document.
    """
    documents, description = request.documents, loaded.description
    if description.task is Task.RERANK:
        if description.pair_template is None and description.chat_template is None:
            return list(map(len, documents))
        assert request.options.prompt is not None
        queries = _for_each(request.queries, len(documents))
        extra = len(request.options.prompt)
        return [
            len(query) + len(document) + extra for query, document in zip(queries, documents, strict=True)
        ]
    extra = len(_document_prompt(loaded))
    return [len(document) + extra for document in documents]


def _shared_size(loaded: LoadedModel, request: Rerank) -> int:
    """Return the number of characters of the instruction and the common query, before each document."""
    if loaded.description.task is not Task.RERANK:
        return 0
    assert request.options.prompt is not None
    queries = request.queries if len(request.queries) == 1 else ()
    return len(request.options.prompt) + sum(map(len, queries))


def _document_prompt(loaded: LoadedModel) -> str:
    options = TextOptions(purpose=Purpose.DOCUMENT)
    if loaded.description.task is Task.MULTI_VECTOR:
        return side_prompt(loaded.description, Purpose.DOCUMENT, options)
    return loaded.prompt(options)


def choose_prompt(loaded: LoadedModel, options: TextOptions, instruction: str | None) -> str:
    """Return the prompt of the query: the requested prompt, or the instruction.

    Raises the same errors as `find_prompt`, and `InvalidRequest` for an instruction that the model would
    ignore.
    """
    description = loaded.description
    if instruction is None:
        return loaded.prompt(options)
    if options.prompt_name is not None:
        raise InvalidRequest("Send `instruction` or `prompt_name`, not both.", field="instruction")
    template = description.pair_template or description.list_template
    takes_instruction = template is not None and template.takes_instruction
    if not takes_instruction and description.chat_template is None:
        raise InvalidRequest(
            "This model takes no instruction: it reads a query and a document alone. Leave it out.",
            field="instruction",
        )
    return instruction


def _check_counts(queries: Sequence[str], documents: Sequence[str]) -> None:
    if not documents:
        raise InvalidRequest("`documents` is empty; give at least one.", field="documents")
    if len(queries) not in (1, len(documents)):
        raise InvalidRequest(
            f"There are {len(queries)} queries for {len(documents)} documents; give one query for all of "
            "them, or one for each.",
            field="documents",
        )


def _check_weights(request: Rerank, loaded: LoadedModel) -> None:
    if request.weights is None:
        return
    asked = "weight several scores"
    require_heads(loaded.description, asked=asked)
    require_unfinished(loaded.description, loaded.dispatcher.info, asked=asked, field="weights")
    total = sum(request.weights)
    if min(request.weights) < 0 or not 0 < total < math.inf:
        raise InvalidRequest(
            "`weights` must be three numbers that are not negative, of which one is above 0.", field="weights"
        )


def _choose_method(loaded: LoadedModel) -> "_RerankMethod":
    if loaded.lists is not None:
        return _BY_LISTS
    return _BY_HEADS if _ranks_by_heads(loaded) else _METHODS[loaded.description.task]


def _ranks_by_heads(loaded: LoadedModel) -> bool:
    # An exported graph of finished embeddings ranks by these, as it does everything else.
    return loaded.description.token_heads is not None and not loaded.dispatcher.info.is_finished


@dataclass(frozen=True, slots=True)
class _CutRequest:
    """A request whose texts are cut to the numbers of tokens that it allows, and the cuts of each text."""

    request: Rerank
    queries: Sequence[tuple[TextCut, ...]]
    documents: Sequence[tuple[TextCut, ...]]


def _truncate_texts(loaded: LoadedModel, request: Rerank) -> Slices[_CutRequest]:
    """Truncate queries and documents to the numbers of tokens that the request allows."""
    options = request.options
    with fields_renamed(input="query"):
        tokenizer = loaded.side_of(Purpose.QUERY).tokenizer
        queries, of_queries = yield from _truncate(tokenizer, request.queries, options.query_tokens)
    documents, of_documents = yield from _truncate(
        loaded.tokenizer, request.documents, options.document_tokens
    )
    return _CutRequest(replace(request, queries=queries, documents=documents), of_queries, of_documents)


def _truncate(
    tokenizer: Tokenizer, texts: tuple[str, ...], most: int | None
) -> Slices[tuple[tuple[str, ...], Sequence[tuple[TextCut, ...]]]]:
    if most is None:
        return texts, [()] * len(texts)
    found = yield from tokenizer.cut_texts_in_slices(texts, most)
    return tuple(text for text, _ in found), [cuts for _, cuts in found]


def _add_cuts(sequences: list[TokenSequence], cut: _CutRequest) -> list[TokenSequence]:
    """Return the sequences, also with the cuts that `_truncate_texts` has made."""
    documents = cut.documents
    texts = [*documents, *cut.queries]
    if not any(texts):
        return sequences
    if len(sequences) < len(documents):  # lists, of which the first may have any cuts
        numbered = [replace(each, index=index) for index, cuts in enumerate(texts) for each in cuts]
        return [replace(sequences[0], cuts=(*sequences[0].cuts, *numbered)), *sequences[1:]]
    if len(sequences) == len(documents):  # pairs
        of_pairs = zip(documents, _for_each(cut.queries, len(documents)), strict=True)
        texts = [(*document, *query) for document, query in of_pairs]
    return [
        replace(sequence, cuts=(*sequence.cuts, *cuts))
        for sequence, cuts in zip(sequences, texts, strict=True)
    ]


def _for_each(queries: Sequence[T], count: int) -> Sequence[T]:
    return queries if len(queries) == count else [queries[0]] * count


# How each kind of model encodes a request, and scores what the engine computed: for pairs one sequence each,
# else the documents and then the queries.


def _encode_pairs(loaded: LoadedModel, request: Rerank) -> Slices[list[TokenSequence]]:
    options, documents = request.options, request.documents
    assert loaded.pairs is not None
    assert options.prompt is not None
    pairs = list(zip(_for_each(request.queries, len(documents)), documents, strict=True))
    return loaded.pairs.encode_in_slices(pairs, prompt=options.prompt, truncation=options.truncation)


def _score_logits(loaded: LoadedModel, request: Rerank, done: Computation) -> FloatArray:
    head = loaded.description.head
    assert head is not None
    logits = stack_embeddings(done.embeddings)
    return (logits if request.raw_scores else activate_logits(logits, head.activation))[:, 0]


def _encode_lists(loaded: LoadedModel, request: Rerank) -> Slices[list[TokenSequence]]:
    options = request.options
    assert loaded.lists is not None
    assert options.prompt is not None
    query, *others = dict.fromkeys(request.queries)
    if others:
        raise InvalidRequest(
            "This model ranks the documents of one query together. Send one query with its documents.",
            field="query",
        )
    sequences = yield from loaded.lists.encode_in_slices(
        query, request.documents, instruction=options.prompt, truncation=options.truncation
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


def _score_lists(loaded: LoadedModel, request: Rerank, done: Computation) -> FloatArray:
    lists = loaded.lists
    assert lists is not None
    pairs = zip(done.sequences, map(dense, done.embeddings), strict=True)
    queries, documents = zip(*(lists.split_rows(*pair) for pair in pairs), strict=True)
    return list_scores(np.stack(queries), documents)


def _encode_texts(loaded: LoadedModel, request: Rerank) -> Slices[list[TokenSequence]]:
    """Encode documents and queries, with separate prompts for documents and queries if the model has them."""
    options = request.options
    assert options.prompt is not None
    truncation = options.truncation
    documents = yield from loaded.documents.encode_in_slices(
        request.documents, prompt=_document_prompt(loaded), truncation=truncation
    )
    with fields_renamed(input="query"):
        queries = yield from loaded.side_of(Purpose.QUERY).encode_in_slices(
            request.queries, prompt=options.prompt, truncation=truncation
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


def _encode_sides(loaded: LoadedModel, request: Rerank) -> Slices[list[TokenSequence]]:
    """Encode documents as documents and queries as queries."""
    options = request.options
    encode = partial(encode_side_in_slices, loaded.description, loaded.tokenizer)
    plain = TextOptions(truncation=options.truncation)
    documents = yield from encode(request.documents, Purpose.DOCUMENT, plain)
    with fields_renamed(input="query"):
        return [*documents, *(yield from encode(request.queries, Purpose.QUERY, options))]


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


def _encode_for_heads(loaded: LoadedModel, request: Rerank) -> Slices[list[TokenSequence]]:
    sequences = yield from _encode_texts(loaded, request)
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
    pairs = zip(_for_each(found[count:], count), found[:count], strict=True)
    return np.array([score(query, document) for query, document in pairs], np.float32)


_HEAD_SCORES = {
    Output.USUAL: _score_dense,
    Output.TOKEN_WEIGHTS: _score_weights,
    Output.TOKEN_VECTORS: _score_vectors,
}


# How many numbers the scoring reads or makes, as far as that decides where to compute it.

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
class _RerankMethod:
    """The method by which models of one task rank documents."""

    encode: Callable[[LoadedModel, Rerank], Slices[list[TokenSequence]]]
    score: Callable[[LoadedModel, Rerank, Computation], FloatArray]
    numbers: Callable[[LoadedModel, Rerank, Computation], int]


_METHODS = {
    Task.RERANK: _RerankMethod(_encode_pairs, _score_logits, _count_scores),
    Task.EMBED: _RerankMethod(_encode_texts, _score_embeddings, _count_dimensions),
    Task.SPARSE: _RerankMethod(_encode_texts, _score_sparse, _count_weights),
    Task.MULTI_VECTOR: _RerankMethod(_encode_sides, _score_tokens, _count_products),
}

# The method of a model that reads a query and its documents together.
_BY_LISTS = _RerankMethod(_encode_lists, _score_lists, _count_products)

# The method of a model with token heads. Products of token vectors outweigh the other scores.
_BY_HEADS = _RerankMethod(_encode_for_heads, _score_heads, _count_products)
