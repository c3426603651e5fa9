"""A query and documents to scores, by whatever the model does with them."""

from collections.abc import Sequence
from functools import partial
from types import MappingProxyType

import numpy as np

from vecmill.errors import InvalidRequest
from vecmill.intake import Answer, Intake
from vecmill.models import Task
from vecmill.operations.multi_vector import Side, kept_rows, read_side
from vecmill.operations.tasks import require_task
from vecmill.rows import sparse, stack_rows
from vecmill.scores import activate_logits, max_similarity, similarity_scores, sparse_product
from vecmill.types import FloatArray, RerankResult, TokenSequence

_FIELD = "documents"


def choose_prompt(intake: Intake, prompt_name: str | None, instruction: str | None) -> str:
    """The prompt of that name, the model's default one, or the instruction for a model that takes one.

    Raises `UnknownPrompt`, and `InvalidRequest` for an instruction that would not be heeded.
    """
    description = intake.description
    if instruction is None:
        return intake.prompt(prompt_name) if description.task is Task.RERANK or prompt_name else ""
    if prompt_name is not None:
        raise InvalidRequest("Send `instruction` or `prompt_name`, not both.", field="instruction")
    if description.pair_template is None and description.chat_template is None:
        raise InvalidRequest(
            "This model takes no instruction: it reads a query and a document alone. Leave it out.",
            field="instruction",
        )
    return instruction


async def rerank(
    intake: Intake,
    query: str,
    documents: Sequence[str],
    *,
    raw_scores: bool,
    prompt: str,
    truncate: bool,
    timeout_s: float | None,
) -> RerankResult:
    """A score for each document, with a prompt of `choose_prompt`. Raises as `Mill.submit` does."""
    description = intake.description
    require_task(description, *_READS, asked="rank documents")
    if not documents:
        raise InvalidRequest("`documents` is empty; give at least one.", field=_FIELD)
    read = _READS[description.task]
    answer = await intake.run(
        lambda: read(intake, query, documents, prompt, truncate),
        # The query goes last, so that what errors call `documents[3]` is just that.
        [*map(len, documents), len(query) + len(prompt)],
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
    description, tokenizer = intake.description, intake.tokenizer
    return [
        *read_side(description, tokenizer, documents, Side.DOCUMENT, truncate=truncate, field=_FIELD),
        *read_side(
            description, tokenizer, [query], Side.QUERY, prompt=prompt, truncate=truncate, field="query"
        ),
    ]


_READS = MappingProxyType(
    {
        Task.RERANK: _read_pairs,
        Task.EMBED: _read_texts,
        Task.SPARSE: _read_texts,
        Task.MULTI_VECTOR: _read_sides,
    }
)


def _scores(intake: Intake, answer: Answer, raw_scores: bool) -> FloatArray:
    description = intake.description
    if description.task is Task.EMBED:
        rows = stack_rows(answer.rows)
        return similarity_scores(rows[-1], rows[:-1], description.similarity)
    if description.task is Task.SPARSE:
        *documents, query = map(sparse, answer.rows)
        return np.array([sparse_product(query, document) for document in documents], np.float32)
    if description.task is Task.MULTI_VECTOR:
        return _similarities(intake, answer)
    assert description.head is not None
    logits = stack_rows(answer.rows)
    scores = logits if raw_scores else activate_logits(logits, description.head.activation)
    return scores[:, 0]


def _similarities(intake: Intake, answer: Answer) -> FloatArray:
    keep = partial(kept_rows, intake.description, intake.tokenizer)
    query = keep(answer.sequences[-1], answer.rows[-1], Side.QUERY)
    documents = zip(answer.sequences[:-1], answer.rows[:-1], strict=True)
    return np.array(
        [max_similarity(query, keep(sequence, row, Side.DOCUMENT)) for sequence, row in documents], np.float32
    )
