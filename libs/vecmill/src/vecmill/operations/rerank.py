"""The `Rerank` request: scores of documents for queries, by any model that can compare them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TypeVar

import numpy as np

from vecmill.errors import InvalidRequest, fields_renamed
from vecmill.models import Task
from vecmill.models.heads import Similarity
from vecmill.operations.admission import Admission, Computation
from vecmill.operations.requirements import require_task
from vecmill.requests import Purpose, Rerank, TextOptions
from vecmill.results import RerankResult
from vecmill.tokenization.late_interaction import encode_side, keep_tokens
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import TokenSequence
from vecmill.vectors.scores import activate_logits, max_similarity, similarity_scores, sparse_product
from vecmill.vectors.transforms import sparse, stack_embeddings

T = TypeVar("T")


async def rerank(admission: Admission, request: Rerank) -> RerankResult:
    """Return a score for each document, either for one common query or for a query of its own.

    Raises the same errors as `Mill.run`.
    """
    task, queries, documents = admission.description.task, request.queries, request.documents
    require_task(admission.description, *_METHODS, asked="rank documents")
    _check_counts(queries, documents)
    options = request.options
    if task is not Task.RERANK:
        options = replace(options, purpose=Purpose.QUERY)
    prompt = choose_prompt(admission, options, request.instruction)
    request = replace(request, options=replace(options, prompt=prompt, prompt_name=None))
    method = _METHODS[task]
    with fields_renamed(input="documents"):
        done = await admission.run(
            request,
            lambda: method.encode(admission, _truncate_texts(admission, request)),
            # The queries go last, so that `documents[3]` in an error is the fourth document.
            sizes=[*map(len, documents), *(len(query) + len(prompt) for query in queries)],
            uncounted=len(queries),
        )
    return RerankResult(method.score(admission, request, done), done.token_count, done.timings)


def choose_prompt(admission: Admission, options: TextOptions, instruction: str | None) -> str:
    """Return the prompt of the query: the requested prompt, or the instruction.

    Raises the same errors as `find_prompt`, and `InvalidRequest` for an instruction that the model would
    ignore.
    """
    description = admission.description
    if instruction is None:
        return admission.prompt(options)
    if options.prompt_name is not None:
        raise InvalidRequest("Send `instruction` or `prompt_name`, not both.", field="instruction")
    if description.pair_template is None and description.chat_template is None:
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


def _truncate_texts(admission: Admission, request: Rerank) -> Rerank:
    """Truncate queries and documents to the numbers of tokens that the request allows."""
    options, cut = request.options, admission.tokenizer.cut_texts
    queries, documents = request.queries, request.documents
    if options.query_tokens is not None:
        with fields_renamed(input="query"):
            queries = tuple(cut(queries, options.query_tokens))
    if options.document_tokens is not None:
        documents = tuple(cut(documents, options.document_tokens))
    return replace(request, queries=queries, documents=documents)


def _for_each(queries: Sequence[T], count: int) -> Sequence[T]:
    return queries if len(queries) == count else [queries[0]] * count


# How each kind of model encodes a request, and scores what the engine computed: for pairs one sequence each,
# else the documents and then the queries.


def _encode_pairs(admission: Admission, request: Rerank) -> list[TokenSequence]:
    options, documents = request.options, request.documents
    assert admission.pairs is not None
    assert options.prompt is not None
    pairs = list(zip(_for_each(request.queries, len(documents)), documents, strict=True))
    return admission.pairs.encode(pairs, prompt=options.prompt, truncation=options.truncation)


def _score_logits(admission: Admission, request: Rerank, done: Computation) -> FloatArray:
    head = admission.description.head
    assert head is not None
    logits = stack_embeddings(done.embeddings)
    return (logits if request.raw_scores else activate_logits(logits, head.activation))[:, 0]


def _encode_texts(admission: Admission, request: Rerank) -> list[TokenSequence]:
    """Encode documents and queries, with separate prompts for documents and queries if the model has them."""
    options = request.options
    assert options.prompt is not None
    encode = partial(admission.tokenizer.encode, truncation=options.truncation)
    documents = encode(request.documents, prompt=admission.prompt(TextOptions(purpose=Purpose.DOCUMENT)))
    with fields_renamed(input="query"):
        return [*documents, *encode(request.queries, prompt=options.prompt)]


def _score_embeddings(admission: Admission, request: Rerank, done: Computation) -> FloatArray:
    embeddings, count = stack_embeddings(done.embeddings), len(request.documents)
    return _similarities(embeddings[count:], embeddings[:count], admission.description.similarity)


def _similarities(queries: FloatArray, documents: FloatArray, similarity: Similarity) -> FloatArray:
    if len(queries) == 1:
        return similarity_scores(queries[0], documents, similarity)
    pairs = zip(queries, documents, strict=True)
    return np.concatenate([similarity_scores(query, one[np.newaxis], similarity) for query, one in pairs])


def _score_sparse(admission: Admission, request: Rerank, done: Computation) -> FloatArray:
    found, count = list(map(sparse, done.embeddings)), len(request.documents)
    pairs = zip(_for_each(found[count:], count), found[:count], strict=True)
    return np.array([sparse_product(query, document) for query, document in pairs], np.float32)


def _encode_sides(admission: Admission, request: Rerank) -> list[TokenSequence]:
    """Encode documents as documents and queries as queries."""
    options, encode = request.options, partial(encode_side, admission.description, admission.tokenizer)
    plain = TextOptions(truncation=options.truncation)
    documents = encode(request.documents, Purpose.DOCUMENT, plain)
    with fields_renamed(input="query"):
        return [*documents, *encode(request.queries, Purpose.QUERY, options)]


def _score_tokens(admission: Admission, request: Rerank, done: Computation) -> FloatArray:
    keep, count = partial(keep_tokens, admission.description, admission.tokenizer), len(request.documents)
    sided = [
        keep(sequence, embedding, Purpose.DOCUMENT if index < count else Purpose.QUERY)
        for index, (sequence, embedding) in enumerate(zip(done.sequences, done.embeddings, strict=True))
    ]
    pairs = zip(_for_each(sided[count:], count), sided[:count], strict=True)
    return np.array([max_similarity(query, document) for query, document in pairs], np.float32)


@dataclass(frozen=True, slots=True)
class _RerankMethod:
    """The method by which models of one task rank documents."""

    encode: Callable[[Admission, Rerank], list[TokenSequence]]
    score: Callable[[Admission, Rerank, Computation], FloatArray]


_METHODS = MappingProxyType(
    {
        Task.RERANK: _RerankMethod(_encode_pairs, _score_logits),
        Task.EMBED: _RerankMethod(_encode_texts, _score_embeddings),
        Task.SPARSE: _RerankMethod(_encode_texts, _score_sparse),
        Task.MULTI_VECTOR: _RerankMethod(_encode_sides, _score_tokens),
    }
)
