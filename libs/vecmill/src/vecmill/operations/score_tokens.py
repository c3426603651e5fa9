"""The `ScoreTokens` request: the scores of the labels for each token of each text."""

from vecmill.models import Task
from vecmill.operations.admission import Admission
from vecmill.operations.requirements import require_task
from vecmill.requests import ScoreTokens
from vecmill.results import ScoreTokensResult
from vecmill.tokenization.slices import Slices
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import TokenSequence
from vecmill.vectors.scores import softmax
from vecmill.vectors.transforms import dense

# The fixed time of a text takes about as long as arithmetic on this many numbers.
TEXT_NUMBERS = 2_000


async def score_tokens(admission: Admission, request: ScoreTokens) -> ScoreTokensResult:
    """Return the scores of each token, special tokens included. Raises the same errors as `Mill.run`."""
    description, truncation = admission.description, request.options.truncation
    require_task(description, Task.CLASSIFY_TOKENS, asked="score the labels of tokens")
    head = description.head
    assert head is not None

    def encode() -> Slices[list[TokenSequence]]:
        found = yield from admission.tokenizer.encode_with_spans_in_slices(
            request.texts, truncation=truncation
        )
        return [sequence for sequence, _ in found]

    done = await admission.run(request, encode)

    def score() -> tuple[FloatArray, ...]:
        logits = map(dense, done.embeddings)
        return tuple(logits) if request.raw_scores else tuple(map(softmax, logits))

    numbers = done.token_count * len(head.labels) + TEXT_NUMBERS * len(request.texts)
    scores = await admission.compute(score, numbers)
    return ScoreTokensResult(head.labels, scores, done.token_count, done.timings, done.truncated_count)
