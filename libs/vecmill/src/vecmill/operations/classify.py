"""Texts and pairs to scores of labels."""

from collections.abc import Sequence

from vecmill.intake import Intake
from vecmill.models import Task
from vecmill.operations.tasks import require_task
from vecmill.pairs import PairTokenizer
from vecmill.reading import DEFAULT_TRUNCATION, Reading, Truncation
from vecmill.rows import stack_rows
from vecmill.scores import activate_logits
from vecmill.tokens import Tokenizer
from vecmill.types import ClassifyResult, TextOrPair, TokenSequence


async def classify(
    intake: Intake,
    inputs: Sequence[TextOrPair],
    *,
    raw_scores: bool,
    reading: Reading,
    timeout_s: float | None,
    field: str,
) -> ClassifyResult:
    """A score for each label of each input. Raises as `Mill.submit` does."""
    head = intake.description.head
    # A cross-encoder is a classifier of pairs with one label; one that judges by a template is none.
    tasks = (Task.CLASSIFY, Task.RERANK) if head is not None and head.labels else (Task.CLASSIFY,)
    require_task(intake.description, *tasks, asked="classify texts")
    assert head is not None
    prompt = intake.prompt(reading)
    answer = await intake.run(
        lambda: read_texts_and_pairs(
            intake.tokenizer,
            intake.pairs,
            inputs,
            prompt=prompt,
            truncation=reading.truncation,
            field=field,
        ),
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


def read_texts_and_pairs(
    tokenizer: Tokenizer,
    pairs: PairTokenizer | None,
    inputs: Sequence[TextOrPair],
    *,
    prompt: str,
    truncation: Truncation = DEFAULT_TRUNCATION,
    field: str = "input",
) -> list[TokenSequence]:
    """The sequences of `inputs`, in order. `pairs` may be `None` where there are only texts."""
    texts = [item for item in inputs if isinstance(item, str)]
    of_texts = iter(tokenizer.encode(texts, prompt=prompt, truncation=truncation, field=field))
    together = [item for item in inputs if not isinstance(item, str)]
    if not together:
        return list(of_texts)
    assert pairs is not None, "the model reads no pairs"
    of_pairs = iter(pairs.encode(together, prompt=prompt, truncation=truncation, field=field))
    return [next(of_texts if isinstance(item, str) else of_pairs) for item in inputs]
