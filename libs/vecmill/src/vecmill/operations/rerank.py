"""A query and documents to scores, by whatever the model does with them."""

from collections.abc import Sequence

import numpy as np

from vecmill.errors import InvalidRequest
from vecmill.intake import Answer, Intake
from vecmill.models import Task
from vecmill.operations.multi_vector import Side, kept_rows, read_side
from vecmill.operations.tasks import require_task
from vecmill.rows import stack_rows
from vecmill.scores import activate_logits, cosine_scores, max_similarity
from vecmill.types import FloatArray, RerankResult, TokenSequence

_FIELD = "documents"


async def rerank(
    intake: Intake,
    query: str,
    documents: Sequence[str],
    *,
    raw_scores: bool,
    prompt_name: str | None,
    truncate: bool,
    timeout_s: float | None,
) -> RerankResult:
    """A score for each document. Raises as `Mill.submit` does."""
    description = intake.description
    require_task(description, Task.RERANK, Task.EMBED, Task.MULTI_VECTOR, asked="rank documents")
    if not documents:
        raise InvalidRequest("`documents` is empty; give at least one.", field=_FIELD)
    reads = {Task.RERANK: _read_pairs, Task.EMBED: _read_texts, Task.MULTI_VECTOR: _read_sides}
    read = reads[description.task]
    prompt = intake.prompt(prompt_name) if description.task is Task.RERANK or prompt_name else ""
    answer = await intake.run(
        lambda: read(intake, query, documents, prompt, truncate),
        # The query goes last, so that what errors call `documents[3]` is just that.
        [*map(len, documents), len(query)],
        field=_FIELD,
        timeout_s=timeout_s,
        uncounted=1,
    )
    return RerankResult(_scores(intake, answer, raw_scores), answer.token_count, answer.timings)


def _read_pairs(
    intake: Intake, query: str, documents: Sequence[str], prompt: str, truncate: bool
) -> list[TokenSequence]:
    assert intake.pairs is not None
    pairs = [(query, document) for document in documents]
    return intake.pairs.encode(pairs, prompt=prompt, truncate=truncate, field=_FIELD)


def _read_texts(
    intake: Intake, query: str, documents: Sequence[str], prompt: str, truncate: bool
) -> list[TokenSequence]:
    """Documents, then the query, each with its own prompt where the model has one."""
    prompts, encode = intake.description.prompts, intake.tokenizer.encode
    of_documents = prompts.get(Side.DOCUMENT, "")
    of_query = prompt or prompts.get(Side.QUERY, "")
    return [
        *encode(documents, prompt=of_documents, truncate=truncate, field=_FIELD),
        *encode([query], prompt=of_query, truncate=truncate, field="query"),
    ]


def _read_sides(
    intake: Intake, query: str, documents: Sequence[str], prompt: str, truncate: bool
) -> list[TokenSequence]:
    """Documents, then the query, each read in its own way."""
    return [
        *read_side(intake, documents, Side.DOCUMENT, truncate=truncate, field=_FIELD),
        *read_side(intake, [query], Side.QUERY, prompt=prompt, truncate=truncate, field="query"),
    ]


def _scores(intake: Intake, answer: Answer, raw_scores: bool) -> FloatArray:
    description = intake.description
    if description.task is Task.EMBED:
        rows = stack_rows(answer.rows)
        return cosine_scores(rows[-1], rows[:-1])
    if description.task is Task.MULTI_VECTOR:
        return _similarities(intake, answer)
    assert description.head is not None
    logits = stack_rows(answer.rows)
    scores = logits if raw_scores else activate_logits(logits, description.head.activation)
    return scores[:, 0]


def _similarities(intake: Intake, answer: Answer) -> FloatArray:
    query = kept_rows(intake, answer.sequences[-1], answer.rows[-1], Side.QUERY)
    documents = zip(answer.sequences[:-1], answer.rows[:-1], strict=True)
    return np.array(
        [
            max_similarity(query, kept_rows(intake, sequence, row, Side.DOCUMENT))
            for sequence, row in documents
        ],
        np.float32,
    )
