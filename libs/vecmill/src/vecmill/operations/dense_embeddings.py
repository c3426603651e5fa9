"""What requests for dense embeddings share, whether they embed whole texts or chunks."""

from collections.abc import Sequence

from vecmill.models import Task
from vecmill.operations.capabilities import require_dimensions, require_task, require_unfinished
from vecmill.operations.loaded_model import LoadedModel, TextPlan
from vecmill.requests import Embed
from vecmill.values.aliases import FloatArray
from vecmill.values.embeddings import Embedding
from vecmill.vectors import finish_embeddings, stack_embeddings, stack_raw_embeddings


def plan_dense(loaded: LoadedModel, request: Embed) -> TextPlan:
    """Return how the texts of a request are read.

    Raises the errors of `LoadedModel.plan`, and `UnsupportedTask` if the model embeds no texts, or if it is
    asked to leave out a normalisation that is part of its graph.
    """
    description = loaded.description
    if description.task is not Task.EMBED:
        require_task(description, Task.EMBED, asked="embed texts")
    if request.dimensions is not None:
        require_dimensions(request.dimensions, description)
    plan = loaded.plan(request.options)
    if request.normalize is False and description.normalize:
        info, asked = plan.side.dispatcher.info, "leave out its normalisation"
        require_unfinished(description, info, asked=asked, field="normalize")
    return plan


def finish_dense(embeddings: Sequence[Embedding], request: Embed, *, normalizes: bool) -> FloatArray:
    """Return computed embeddings as one array, (n, dim) float32, as the request asks for them.

    `normalizes` tells whether the model scales its embeddings to length 1.
    """
    rows = stack_raw_embeddings(embeddings) if request.normalize is False else stack_embeddings(embeddings)
    if request.normalize is None and request.dimensions is None:
        return rows
    return finish_embeddings(rows, request.dimensions, request.normalize, normalizes)
