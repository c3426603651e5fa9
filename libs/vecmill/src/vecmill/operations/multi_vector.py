"""Texts to a row for each token.

Source of the rules: sentence-transformers 6.2 (`MultiVectorEncoder`, `MultiVectorMask`, and
`Transformer.preprocess` for the expansion of queries).
"""

from collections.abc import Sequence
from enum import StrEnum

import numpy as np

from vecmill.intake import Intake
from vecmill.models import ModelDescription, Task
from vecmill.models.heads import MultiVector
from vecmill.operations.tasks import require_task
from vecmill.rows import dense
from vecmill.tokens import Tokenizer
from vecmill.types import FloatArray, MultiVectorResult, Row, TokenSequence


class Side(StrEnum):
    """Whether a text asks or answers: many models read the two differently."""

    QUERY = "query"
    DOCUMENT = "document"


async def embed_all(
    intake: Intake,
    texts: Sequence[str],
    *,
    side: Side,
    truncate: bool,
    timeout_s: float | None,
    field: str,
) -> MultiVectorResult:
    """For each text, a row for each of its tokens. Raises as `Mill.submit` does."""
    require_task(intake.description, Task.MULTI_VECTOR, asked="give an embedding for each token")
    answer = await intake.run(
        lambda: read_side(intake.description, intake.tokenizer, texts, side, truncate=truncate, field=field),
        [len(text) for text in texts],
        field=field,
        timeout_s=timeout_s,
    )
    rows = tuple(
        kept_rows(intake.description, intake.tokenizer, sequence, row, side)
        for sequence, row in zip(answer.sequences, answer.rows, strict=True)
    )
    return MultiVectorResult(rows, answer.token_count, answer.timings)


def read_side(
    description: ModelDescription,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    side: Side,
    *,
    prompt: str = "",
    truncate: bool = True,
    field: str = "input",
) -> list[TokenSequence]:
    """The sequences of `texts`, read as queries or documents, after `prompt` or the side's own one."""
    settings = description.multi_vector or MultiVector()
    prompt = prompt or description.prompts.get(side, "")
    limit = settings.query_tokens if side is Side.QUERY else settings.document_tokens
    if side is Side.DOCUMENT or settings.expansion is None:
        return tokenizer.encode(texts, prompt=prompt, truncate=truncate, field=field, max_tokens=limit)
    return tokenizer.encode_expanded(
        texts, settings.expansion, prompt=prompt, truncate=truncate, field=field, max_tokens=limit
    )


def kept_rows(
    description: ModelDescription, tokenizer: Tokenizer, sequence: TokenSequence, row: Row, side: Side
) -> FloatArray:
    """The rows of a text's tokens, without those of tokens that the model skips on this side."""
    settings, rows = description.multi_vector or MultiVector(), dense(row)
    if not settings.skipped or side not in settings.skipped_in:
        return rows
    skipped = [tokenizer.library.token_to_id(word) for word in settings.skipped]
    known = [token_id for token_id in skipped if token_id is not None]
    kept: FloatArray = rows[~np.isin(sequence.token_ids, known)]
    return kept
