"""Texts to a row for each token.

Source of the rules: sentence-transformers 6.2 (`MultiVectorEncoder`, `MultiVectorMask`, and
`Transformer.preprocess` for the expansion of queries).
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from vecmill.intake import Intake
from vecmill.models import ModelDescription, Task
from vecmill.models.heads import MultiVector
from vecmill.operations.tasks import require_task
from vecmill.reading import DEFAULT_READING, Purpose, Reading, find_prompt
from vecmill.rows import dense
from vecmill.tokens import Tokenizer
from vecmill.types import FloatArray, MultiVectorResult, Row, TokenSequence


async def embed_all(
    intake: Intake,
    texts: Sequence[str],
    *,
    reading: Reading,
    timeout_s: float | None,
    field: str,
) -> MultiVectorResult:
    """For each text, a row for each of its tokens. Raises as `Mill.submit` does."""
    require_task(intake.description, Task.MULTI_VECTOR, asked="give an embedding for each token")
    side = reading.purpose or Purpose.DOCUMENT
    answer = await intake.run(
        lambda: read_side(intake.description, intake.tokenizer, texts, side, reading, field=field),
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
    side: Purpose,
    reading: Reading = DEFAULT_READING,
    *,
    field: str = "input",
) -> list[TokenSequence]:
    """The sequences of `texts`, read as `side`, after the prompt asked for or the side's own."""
    settings = description.multi_vector or MultiVector()
    prompt = find_prompt(description.prompts, "", replace(reading, purpose=side))
    own_limit = settings.query_tokens if side is Purpose.QUERY else settings.document_tokens
    truncation = reading.truncation.within(own_limit)
    if side is not Purpose.QUERY or settings.expansion is None:
        return tokenizer.encode(texts, prompt=prompt, truncation=truncation, field=field)
    return tokenizer.encode_expanded(
        texts, settings.expansion, prompt=prompt, truncation=truncation, field=field
    )


def kept_rows(
    description: ModelDescription, tokenizer: Tokenizer, sequence: TokenSequence, row: Row, side: Purpose
) -> FloatArray:
    """The rows of a text's tokens, without those of tokens that the model skips on this side."""
    kept = mark_kept(description, tokenizer, sequence, side)
    rows = dense(row)
    return rows if kept.all() else rows[kept]


def mark_kept(
    description: ModelDescription, tokenizer: Tokenizer, sequence: TokenSequence, side: Purpose
) -> npt.NDArray[np.bool_]:
    """For each token, whether the model does not skip it on this side: (tokens,)."""
    settings = description.multi_vector or MultiVector()
    if not settings.skipped or side not in settings.skipped_in:
        return np.ones(len(sequence), np.bool_)
    skipped = [tokenizer.library.token_to_id(word) for word in settings.skipped]
    known = [token_id for token_id in skipped if token_id is not None]
    return np.isin(sequence.token_ids, known, invert=True)
