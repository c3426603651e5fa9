"""The `EmbedTokens` request: an embedding of each token of each text."""

from vecmill.errors import RequestTooLarge
from vecmill.models import Task
from vecmill.operations.admission import Admission
from vecmill.operations.requirements import require_task, require_unfinished
from vecmill.requests import EmbedTokens, Purpose
from vecmill.results import EmbedTokensResult
from vecmill.tokenization.late_interaction import encode_side_in_slices, keep_tokens, side_prompt
from vecmill.tokenization.slices import Slices
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import TokenSequence
from vecmill.vectors.transforms import dense

# The fixed time of a text takes about as long as arithmetic on this many numbers.
TEXT_NUMBERS = 2_000
# Hidden states are wider than the embeddings of multi-vector models. So many take 64 MB, and more as JSON.
MOST_HIDDEN_NUMBERS = 2**24


async def embed_tokens(admission: Admission, request: EmbedTokens) -> EmbedTokensResult:
    """Return the token embeddings of each text. By default, texts are embedded as documents.

    Raises the same errors as `Mill.run`.
    """
    description, tokenizer = admission.description, admission.tokenizer
    if request.hidden_states and description.task is Task.EMBED:
        return await _give_hidden_states(admission, request)
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


async def _give_hidden_states(admission: Admission, request: EmbedTokens) -> EmbedTokensResult:
    """Return the last hidden states of an embedding model, special tokens included."""
    info = admission.dispatcher.info
    require_unfinished(admission.description, info, asked="return hidden states", field="model")
    prompt = admission.prompt(request.options)

    def encode() -> Slices[list[TokenSequence]]:
        sequences = yield from admission.tokenizer.encode_in_slices(
            request.texts, prompt=prompt, truncation=request.options.truncation
        )
        _check_numbers(sum(map(len, sequences)), admission.description.encoder.hidden_size)
        return [sequence.for_tokens() for sequence in sequences]

    sizes = [size + len(prompt) for size in request.sizes]
    done = await admission.run(request, encode, sizes=sizes)
    states = tuple(map(dense, done.embeddings))
    return EmbedTokensResult(states, done.token_count, done.timings, done.truncated_count)


def _check_numbers(tokens: int, width: int) -> None:
    most = MOST_HIDDEN_NUMBERS // width
    if tokens > most:
        raise RequestTooLarge(
            f"`input` has {tokens} tokens in all; at most {most} hidden states of this model are returned at "
            "once. Send it in parts.",
            field="input",
        )
