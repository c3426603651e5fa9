"""What requests for dense embeddings share, whether they embed whole texts or chunks."""

from collections.abc import Sequence

from vecmill.operations.admission import Admission, require_unfinished
from vecmill.operations.query_side import find_route
from vecmill.requests import Embed, Purpose
from vecmill.tokenization.prompts import Prompt
from vecmill.values.aliases import FloatArray
from vecmill.values.embeddings import Embedding
from vecmill.vectors import finish_embeddings, stack_embeddings, stack_raw_embeddings


def find_dense_route(admission: Admission, request: Embed) -> tuple[Purpose, Prompt]:
    """Return the side of the model and the prompt for the texts of a request.

    Raises the errors of `find_route` and `find_prompt`, and `UnsupportedTask` if the request asks to leave
    out a normalisation that is part of the model's graph.
    """
    description = admission.description
    route, prompt = find_route(description, request.options), admission.prompt(request.options)
    if request.normalize is False and description.normalize:
        info, asked = admission.dispatcher_of(route).info, "leave out its normalisation"
        require_unfinished(description, info, asked=asked, field="normalize")
    return route, prompt


def finish_dense(embeddings: Sequence[Embedding], request: Embed, *, normalizes: bool) -> FloatArray:
    """Return computed embeddings as one array, (n, dim) float32, as the request asks for them.

    `normalizes` tells whether the model scales its embeddings to length 1.
    """
    stack = stack_raw_embeddings if request.normalize is False else stack_embeddings
    return finish_embeddings(stack(embeddings), request.dimensions, request.normalize, normalizes)
