"""The `Embed` request with `late_chunking`: an embedding, with context, for each chunk of a long text.

How it works. A multi-vector model encodes the joined chunks as one document. The embedding of a chunk is the
mean of the embeddings of its tokens. (Günther et al. 2024, arXiv:2409.04701.)
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from vecmill.errors import InvalidRequest, UnsupportedTask
from vecmill.models import ModelDescription, Task
from vecmill.operations.admission import Admission, require_dimensions
from vecmill.requests import Embed, Purpose, TextOptions, TextOrIds
from vecmill.results import EmbedResult
from vecmill.tokenization.late_interaction import kept_tokens, side_prompt
from vecmill.tokenization.pieces import Slices
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.aliases import FloatArray, IntArray
from vecmill.values.batch import TokenSequence
from vecmill.vectors import dense, truncate_embeddings

# The text between two chunks.
SEPARATOR = " "
# The fixed time of a chunk takes about as long as arithmetic on this many numbers.
CHUNK_NUMBERS = 5_000


async def embed_chunks(admission: Admission, request: Embed) -> EmbedResult:
    """Return one embedding for each input; all inputs are encoded together.

    Raises the same errors as `Mill.run`.
    """
    description = admission.description
    if description.task is not Task.MULTI_VECTOR:
        raise UnsupportedTask(
            f"`late_chunking` needs a model that gives an embedding for each token; {description.name} does "
            "not. Leave it out, and each text is embedded alone.",
            field="late_chunking",
        )
    require_dimensions(request.dimensions, description)
    texts = _require_texts(request.inputs)
    found: list[JoinedChunks] = []

    def encode() -> Slices[list[TokenSequence]]:
        joined = yield from join_chunks(description, admission.tokenizer, texts, request.options)
        found.append(joined)
        return [joined.sequence]

    sizes = request.sizes
    if sizes:
        sizes[0] += len(_prompt(description, request.options))
    done = await admission.run(request, encode, sizes=sizes)
    joined = found[0]

    def average() -> FloatArray:
        kept = kept_tokens(description, admission.tokenizer, joined.sequence, Purpose.DOCUMENT)
        embeddings = average_chunks(dense(done.embeddings[0]), joined.owners, kept)
        is_unit = description.normalize if request.normalize is None else request.normalize
        return truncate_embeddings(embeddings, request.dimensions or embeddings.shape[1], normalize=is_unit)

    # Each chunk looks at the owners of all tokens.
    numbers = done.token_count * (description.dim + len(texts)) + CHUNK_NUMBERS * len(texts)
    embeddings = await admission.compute(average, numbers)
    return EmbedResult(embeddings, joined.token_counts, done.timings)


@dataclass(frozen=True, slots=True)
class JoinedChunks:
    """Chunks as one sequence.

    `owners` (tokens,) int64 is the chunk of each token, or -1 for a token outside all chunks.
    """

    sequence: TokenSequence
    owners: IntArray

    @property
    def token_counts(self) -> tuple[int, ...]:
        """The number of tokens of each chunk. Special tokens and prompts count towards the first chunk."""
        counts = np.bincount(self.owners[self.owners >= 0])
        counts[0] += np.count_nonzero(self.owners < 0)
        return tuple(counts.tolist())


def join_chunks(
    description: ModelDescription, tokenizer: Tokenizer, texts: Sequence[str], options: TextOptions
) -> Slices[JoinedChunks]:
    """Join the chunks `texts` into one document in slices. The document begins with its prompt.

    Raises `InputTooLong` if the document is longer than the model's longest input, since the last chunks
    would have no embedding. Raises `InvalidRequest` for a chunk without tokens.
    """
    prompt = _prompt(description, options)
    (read,) = yield from tokenizer.encode_with_spans_in_slices(
        [prompt + SEPARATOR.join(texts)],
        truncation=replace(options.truncation, is_allowed=False),
    )
    sequence, spans = read
    starts = np.array([len(prompt), *accumulate(len(text) + len(SEPARATOR) for text in texts)])
    starts[1:] += len(prompt)
    ends = starts[:-1] + [len(text) for text in texts]
    # A token that begins with the space before a chunk is the chunk's: its last character tells.
    last = np.array(spans.ends) - 1
    owners = np.searchsorted(starts, last, side="right") - 1
    is_empty = np.array(spans.starts) >= np.array(spans.ends)
    is_outside = (owners < 0) | (last >= ends[np.clip(owners, 0, len(texts) - 1)])
    owners[np.array(spans.is_special) | is_empty | is_outside] = -1
    for index in np.setdiff1d(np.arange(len(texts)), owners).tolist():
        raise InvalidRequest(
            f"`input[{index}]` has no tokens of this model for `late_chunking` to use. Leave it out.",
            field=f"input[{index}]",
        )
    return JoinedChunks(sequence, owners)


def average_chunks(embeddings: FloatArray, owners: IntArray, kept: npt.NDArray[np.bool_]) -> FloatArray:
    """Return the mean of the embeddings (tokens, dim) of each chunk's tokens: (chunks, dim).

    Tokens that are not `kept` count only in chunks without kept tokens.
    """
    means = []
    for chunk in range(int(owners.max()) + 1):
        own = owners == chunk
        chosen = own & kept
        means.append(embeddings[chosen if chosen.any() else own].mean(axis=0))
    return np.stack(means)


def _prompt(description: ModelDescription, options: TextOptions) -> str:
    return side_prompt(description, options.purpose or Purpose.DOCUMENT, options)


def _require_texts(inputs: Sequence[TextOrIds]) -> list[str]:
    texts = [item for item in inputs if isinstance(item, str)]
    if len(texts) < len(inputs):
        raise InvalidRequest(
            "`late_chunking` joins texts, and cannot join token ids. Send text.", field="input"
        )
    return texts
