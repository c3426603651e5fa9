"""Texts to sparse rows."""

from collections.abc import Sequence

from vecmill.intake import Intake
from vecmill.models import Task
from vecmill.operations.tasks import require_task
from vecmill.reading import Reading
from vecmill.rows import sparse
from vecmill.types import SparseResult


async def embed_sparse(
    intake: Intake,
    texts: Sequence[str],
    *,
    reading: Reading,
    timeout_s: float | None,
    field: str,
) -> SparseResult:
    """One sparse row for each text. Raises as `Mill.submit` does."""
    require_task(intake.description, Task.SPARSE, asked="give sparse embeddings")
    prompt = intake.prompt(reading)
    answer = await intake.run(
        lambda: intake.tokenizer.encode(texts, prompt=prompt, truncation=reading.truncation, field=field),
        [len(text) for text in texts],
        field=field,
        timeout_s=timeout_s,
    )
    return SparseResult(tuple(map(sparse, answer.rows)), answer.token_count, answer.timings)
