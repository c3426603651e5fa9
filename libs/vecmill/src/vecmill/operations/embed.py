"""Texts to rows."""

from vecmill.errors import InvalidRequest
from vecmill.intake import Intake
from vecmill.models import Task
from vecmill.operations.tasks import require_task
from vecmill.rows import cut_rows, stack_rows
from vecmill.types import EmbedRequest, EmbedResult, TokenSequence


async def embed(intake: Intake, request: EmbedRequest) -> EmbedResult:
    """One row for each input. Raises as `Mill.submit` does."""
    description = intake.description
    require_task(description, Task.EMBED, asked="embed texts")
    dimensions = request.dimensions
    if dimensions is not None and not 1 <= dimensions <= description.dim:
        raise InvalidRequest(
            f"`dimensions` is {dimensions}; this model's rows can be cut to 1 to {description.dim}.",
            field="dimensions",
        )
    prompt = intake.prompt(request.prompt_name)
    answer = await intake.run(
        lambda: _read(intake, request, prompt),
        [len(item) for item in request.inputs],
        field=request.field,
        timeout_s=request.timeout_s,
    )
    rows = stack_rows(answer.rows)
    if dimensions is not None and dimensions < rows.shape[1]:
        rows = cut_rows(rows, dimensions, normalize=description.normalize)
    return EmbedResult(rows, answer.token_counts, answer.timings)


def _read(intake: Intake, request: EmbedRequest, prompt: str) -> list[TokenSequence]:
    tokenizer, truncate, field = intake.tokenizer, request.truncate, request.field
    texts = [item for item in request.inputs if isinstance(item, str)]
    of_texts = iter(tokenizer.encode(texts, prompt=prompt, truncate=truncate, field=field))
    return [
        next(of_texts)
        if isinstance(item, str)
        else tokenizer.from_ids(item, truncate=truncate, field=f"{field}[{index}]")
        for index, item in enumerate(request.inputs)
    ]
