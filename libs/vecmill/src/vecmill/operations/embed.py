"""Texts to rows."""

from vecmill.errors import InvalidRequest
from vecmill.intake import Intake
from vecmill.models import ModelDescription, Task
from vecmill.operations.tasks import require_task
from vecmill.rows import cut_rows, normalize_rows, stack_rows
from vecmill.types import EmbedRequest, EmbedResult, FloatArray, TokenSequence


async def embed(intake: Intake, request: EmbedRequest) -> EmbedResult:
    """One row for each input. Raises as `Mill.submit` does."""
    description = intake.description
    require_task(description, Task.EMBED, asked="embed texts")
    dimensions = request.dimensions
    check_dimensions(dimensions, description)
    prompt = intake.prompt(request.reading)
    answer = await intake.run(
        lambda: _read(intake, request, prompt),
        [len(item) for item in request.inputs],
        field=request.field,
        timeout_s=request.timeout_s,
        is_bulk=request.is_bulk,
    )
    rows = finish_rows(stack_rows(answer.rows), description, dimensions, request.normalize)
    return EmbedResult(rows, answer.token_counts, answer.timings)


def finish_rows(
    rows: FloatArray, description: ModelDescription, dimensions: int | None, normalize: bool | None
) -> FloatArray:
    """The engine's rows, cut to `dimensions` and normalised as the model does, or as is asked for.

    `normalize` is sentence-transformers' `normalize_embeddings`: false adds nothing to what the model does
    itself, so that the rows of a model which ends in normalisation have length 1 unless they are cut.
    """
    wants_unit = description.normalize if normalize is None else normalize
    if dimensions is not None and dimensions < rows.shape[1]:
        return cut_rows(rows, dimensions, normalize=wants_unit)
    return normalize_rows(rows) if wants_unit and not description.normalize else rows


def check_dimensions(dimensions: int | None, description: ModelDescription) -> None:
    """Raise `InvalidRequest` for a length that no row of the model can be cut to."""
    if dimensions is not None and not 1 <= dimensions <= description.dim:
        raise InvalidRequest(
            f"`dimensions` is {dimensions}; this model's rows can be cut to 1 to {description.dim}.",
            field="dimensions",
        )


def _read(intake: Intake, request: EmbedRequest, prompt: str) -> list[TokenSequence]:
    tokenizer, truncation, field = intake.tokenizer, request.reading.truncation, request.field
    texts = [item for item in request.inputs if isinstance(item, str)]
    of_texts = iter(tokenizer.encode(texts, prompt=prompt, truncation=truncation, field=field))
    return [
        next(of_texts)
        if isinstance(item, str)
        else tokenizer.from_ids(item, truncation=truncation, field=f"{field}[{index}]")
        for index, item in enumerate(request.inputs)
    ]
