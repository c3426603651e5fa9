"""The `EmbedSparse` request: one sparse embedding for each text."""

from vecmill.models import Task
from vecmill.operations.admission import Admission
from vecmill.operations.requirements import require_task
from vecmill.requests import EmbedSparse
from vecmill.results import EmbedSparseResult
from vecmill.vectors.transforms import sparse


async def embed_sparse(admission: Admission, request: EmbedSparse) -> EmbedSparseResult:
    """Return a sparse embedding for each text. Raises the same errors as `Mill.run`."""
    require_task(admission.description, Task.SPARSE, asked="give sparse embeddings")
    prompt, truncation = admission.prompt(request.options), request.options.truncation
    done = await admission.run(
        request,
        lambda: admission.tokenizer.encode_in_slices(request.texts, prompt=prompt, truncation=truncation),
        sizes=[size + len(prompt) for size in request.sizes],
    )
    embeddings = tuple(map(sparse, done.embeddings))
    return EmbedSparseResult(embeddings, done.token_count, done.timings, done.truncated_count)
