"""The `EmbedTokens` request: an embedding for each token of each text."""

from vecmill.models import Task
from vecmill.operations.admission import Admission
from vecmill.operations.requirements import require_task
from vecmill.requests import EmbedTokens, Purpose
from vecmill.results import EmbedTokensResult
from vecmill.tokenization.late_interaction import encode_side_in_slices, keep_tokens, side_prompt
from vecmill.values.aliases import FloatArray

# The fixed time of a text takes about as long as arithmetic on this many numbers.
TEXT_NUMBERS = 2_000


async def embed_tokens(admission: Admission, request: EmbedTokens) -> EmbedTokensResult:
    """Return the token embeddings of each text. By default, texts are embedded as documents.

    Raises the same errors as `Mill.run`.
    """
    description, tokenizer = admission.description, admission.tokenizer
    require_task(description, Task.MULTI_VECTOR, asked="give an embedding for each token")
    side = request.options.purpose or Purpose.DOCUMENT
    prompt = side_prompt(description, side, request.options)
    done = await admission.run(
        request,
        lambda: encode_side_in_slices(description, tokenizer, request.texts, side, request.options),
        sizes=[size + len(prompt) for size in request.sizes],
    )

    def keep() -> tuple[FloatArray, ...]:
        pairs = zip(done.sequences, done.embeddings, strict=True)
        return tuple(keep_tokens(description, tokenizer, *pair, side) for pair in pairs)

    numbers = done.token_count * description.dim + TEXT_NUMBERS * len(request.texts)
    embeddings = await admission.compute(keep, numbers)
    return EmbedTokensResult(embeddings, done.token_count, done.timings, done.truncated_count)
