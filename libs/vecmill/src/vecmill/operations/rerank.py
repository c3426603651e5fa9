"""Queries and documents to scores, by whatever the model does with them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TypeVar

import numpy as np

from vecmill.errors import InvalidRequest
from vecmill.intake import Answer, Intake
from vecmill.models import Task
from vecmill.models.heads import Similarity
from vecmill.operations.multi_vector import kept_rows, read_side
from vecmill.operations.tasks import require_task
from vecmill.reading import Purpose, Reading
from vecmill.rows import sparse, stack_rows
from vecmill.scores import activate_logits, max_similarity, similarity_scores, sparse_product
from vecmill.types import FloatArray, RerankResult, TokenSequence

T = TypeVar("T")

_FIELD = "documents"


def choose_prompt(intake: Intake, reading: Reading, instruction: str | None) -> str:
    """What goes before the query: a prompt as `find_prompt` finds it, or the instruction.

    Raises as `find_prompt` does, and `InvalidRequest` for an instruction that would not be heeded.
    """
    description = intake.description
    if instruction is None:
        return intake.prompt(reading)
    if reading.prompt_name is not None:
        raise InvalidRequest("Send `instruction` or `prompt_name`, not both.", field="instruction")
    if description.pair_template is None and description.chat_template is None:
        raise InvalidRequest(
            "This model takes no instruction: it reads a query and a document alone. Leave it out.",
            field="instruction",
        )
    return instruction


async def rerank(
    intake: Intake,
    queries: Sequence[str],
    documents: Sequence[str],
    *,
    raw_scores: bool,
    reading: Reading,
    instruction: str | None,
    timeout_s: float | None,
) -> RerankResult:
    """A score for each document: for the one query, or each for its own. Raises as `Mill.submit` does."""
    description = intake.description
    require_task(description, *_READS, asked="rank documents")
    _check_counts(queries, documents)
    if description.task is not Task.RERANK:
        reading = replace(reading, purpose=Purpose.QUERY)
    prompt = choose_prompt(intake, reading, instruction)
    read = _READS[description.task]
    answer = await intake.run(
        lambda: read(
            intake,
            _cut_texts(intake, queries, reading.query_tokens, "query"),
            _cut_texts(intake, documents, reading.document_tokens, _FIELD),
            replace(reading, prompt=prompt, prompt_name=None),
        ),
        # The queries go last, so that what errors call `documents[3]` is just that.
        [*map(len, documents), *(len(query) + len(prompt) for query in queries)],
        field=_FIELD,
        timeout_s=timeout_s,
        uncounted=len(queries),
    )
    scores = _scores(intake, answer, len(documents), raw_scores)
    return RerankResult(scores, answer.token_count, answer.timings)


def _check_counts(queries: Sequence[str], documents: Sequence[str]) -> None:
    if not documents:
        raise InvalidRequest("`documents` is empty; give at least one.", field=_FIELD)
    if len(queries) not in (1, len(documents)):
        raise InvalidRequest(
            f"There are {len(queries)} queries for {len(documents)} documents; give one query for all of "
            "them, or one for each.",
            field=_FIELD,
        )


def _cut_texts(intake: Intake, texts: Sequence[str], max_tokens: int | None, field: str) -> Sequence[str]:
    return texts if max_tokens is None else intake.tokenizer.cut_texts(texts, max_tokens, field=field)


def _read_pairs(
    intake: Intake, queries: Sequence[str], documents: Sequence[str], reading: Reading
) -> list[TokenSequence]:
    assert intake.pairs is not None
    assert reading.prompt is not None
    pairs = list(zip(_for_each(queries, len(documents)), documents, strict=True))
    return intake.pairs.encode(pairs, prompt=reading.prompt, truncation=reading.truncation, field=_FIELD)


def _read_texts(
    intake: Intake, queries: Sequence[str], documents: Sequence[str], reading: Reading
) -> list[TokenSequence]:
    """Documents, then the queries, each with its own prompt where the model has one."""
    assert reading.prompt is not None
    truncation, encode = reading.truncation, intake.tokenizer.encode
    of_documents = intake.prompt(Reading(purpose=Purpose.DOCUMENT))
    return [
        *encode(documents, prompt=of_documents, truncation=truncation, field=_FIELD),
        *encode(queries, prompt=reading.prompt, truncation=truncation, field="query"),
    ]


def _read_sides(
    intake: Intake, queries: Sequence[str], documents: Sequence[str], reading: Reading
) -> list[TokenSequence]:
    """Documents, then the queries, each read in its own way."""
    description, tokenizer = intake.description, intake.tokenizer
    of_documents = Reading(truncation=reading.truncation)
    return [
        *read_side(description, tokenizer, documents, Purpose.DOCUMENT, of_documents, field=_FIELD),
        *read_side(description, tokenizer, queries, Purpose.QUERY, reading, field="query"),
    ]


def _for_each(queries: Sequence[T], count: int) -> Sequence[T]:
    return queries if len(queries) == count else [queries[0]] * count


_READS = MappingProxyType(
    {
        Task.RERANK: _read_pairs,
        Task.EMBED: _read_texts,
        Task.SPARSE: _read_texts,
        Task.MULTI_VECTOR: _read_sides,
    }
)


def _scores(intake: Intake, answer: Answer, count: int, raw_scores: bool) -> FloatArray:
    """The scores of `count` documents, whose rows come before those of the queries."""
    description = intake.description
    if description.task is Task.RERANK:
        assert description.head is not None
        logits = stack_rows(answer.rows)
        return (logits if raw_scores else activate_logits(logits, description.head.activation))[:, 0]
    if description.task is Task.EMBED:
        rows = stack_rows(answer.rows)
        return _similarities(rows[count:], rows[:count], description.similarity)
    if description.task is Task.SPARSE:
        found = list(map(sparse, answer.rows))
        pairs = zip(_for_each(found[count:], count), found[:count], strict=True)
        return np.array([sparse_product(query, document) for query, document in pairs], np.float32)
    return _best_matches(intake, answer, count)


def _similarities(queries: FloatArray, documents: FloatArray, similarity: Similarity) -> FloatArray:
    if len(queries) == 1:
        return similarity_scores(queries[0], documents, similarity)
    pairs = zip(queries, documents, strict=True)
    return np.concatenate([similarity_scores(query, row[np.newaxis], similarity) for query, row in pairs])


def _best_matches(intake: Intake, answer: Answer, count: int) -> FloatArray:
    keep = partial(kept_rows, intake.description, intake.tokenizer)
    sided = [
        keep(sequence, row, Purpose.DOCUMENT if index < count else Purpose.QUERY)
        for index, (sequence, row) in enumerate(zip(answer.sequences, answer.rows, strict=True))
    ]
    pairs = zip(_for_each(sided[count:], count), sided[:count], strict=True)
    return np.array([max_similarity(query, document) for query, document in pairs], np.float32)
