"""Texts and pairs to scores of labels."""

from collections.abc import Sequence

from vecmill.intake import Intake
from vecmill.models import Task
from vecmill.operations.tasks import require_task
from vecmill.rows import stack_rows
from vecmill.scores import activate_logits
from vecmill.types import ClassifyResult, TextOrPair, TokenSequence


async def classify(
    intake: Intake,
    inputs: Sequence[TextOrPair],
    *,
    raw_scores: bool,
    truncate: bool,
    timeout_s: float | None,
    field: str,
) -> ClassifyResult:
    """A score for each label of each input. Raises as `Mill.submit` does."""
    head = intake.description.head
    # A cross-encoder is a classifier of pairs with one label; one that judges by a template is none.
    tasks = (Task.CLASSIFY, Task.RERANK) if head is not None and head.labels else (Task.CLASSIFY,)
    require_task(intake.description, *tasks, asked="classify texts")
    assert head is not None
    prompt = intake.prompt(None)
    answer = await intake.run(
        lambda: _read(intake, inputs, prompt, truncate, field),
        [len(item) if isinstance(item, str) else sum(map(len, item)) for item in inputs],
        field=field,
        timeout_s=timeout_s,
    )
    logits = stack_rows(answer.rows)
    return ClassifyResult(
        labels=head.labels,
        scores=logits if raw_scores else activate_logits(logits, head.activation),
        token_count=answer.token_count,
        timings=answer.timings,
    )


def _read(
    intake: Intake, inputs: Sequence[TextOrPair], prompt: str, truncate: bool, field: str
) -> list[TokenSequence]:
    assert intake.pairs is not None
    texts = [item for item in inputs if isinstance(item, str)]
    pairs = [item for item in inputs if not isinstance(item, str)]
    of_texts = iter(intake.tokenizer.encode(texts, prompt=prompt, truncate=truncate, field=field))
    of_pairs = iter(intake.pairs.encode(pairs, prompt=prompt, truncate=truncate, field=field))
    return [next(of_texts if isinstance(item, str) else of_pairs) for item in inputs]
