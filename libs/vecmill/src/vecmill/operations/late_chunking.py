"""Chunks of one long text to a row each, every chunk read in the light of the others.

How it works. The chunks are joined and read as one document by a model that gives a row for each token; the
row of a chunk is the mean of the rows of its tokens. (Günther et al. 2024, arXiv:2409.04701.)
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from vecmill.errors import InvalidRequest, UnsupportedTask
from vecmill.intake import Intake
from vecmill.models import ModelDescription, Task
from vecmill.operations.embed import check_dimensions
from vecmill.operations.multi_vector import mark_kept
from vecmill.reading import Purpose, Reading, find_prompt
from vecmill.rows import cut_rows, dense
from vecmill.tokens import Tokenizer
from vecmill.types import EmbedRequest, EmbedResult, FloatArray, IntArray, TextOrIds, TokenSequence

# What is put between two chunks.
SEPARATOR = " "


async def embed_chunks(intake: Intake, request: EmbedRequest) -> EmbedResult:
    """One row for each input, all of them read together. Raises as `Mill.submit` does."""
    description = intake.description
    if description.task is not Task.MULTI_VECTOR:
        raise UnsupportedTask(
            f"`late_chunking` needs a model that gives a row for each token; {description.name} does not. "
            "Leave it out, and each text is read alone.",
            field="late_chunking",
        )
    check_dimensions(request.dimensions, description)
    texts = _require_texts(request.inputs, request.field)
    found: list[JoinedChunks] = []

    def read() -> list[TokenSequence]:
        found.append(join_chunks(description, intake.tokenizer, texts, request.reading, request.field))
        return [found[0].sequence]

    answer = await intake.run(
        read, [len(text) for text in texts], field=request.field, timeout_s=request.timeout_s
    )
    joined = found[0]
    kept = mark_kept(description, intake.tokenizer, joined.sequence, Purpose.DOCUMENT)
    rows = average_chunks(dense(answer.rows[0]), joined.owners, kept)
    is_unit = description.normalize if request.normalize is None else request.normalize
    rows = cut_rows(rows, request.dimensions or rows.shape[1], normalize=is_unit)
    return EmbedResult(rows, joined.token_counts, answer.timings)


@dataclass(frozen=True, slots=True)
class JoinedChunks:
    """Chunks as one sequence. `owners` (tokens,) int64 is the chunk of each token, -1 for that of none."""

    sequence: TokenSequence
    owners: IntArray

    @property
    def token_counts(self) -> tuple[int, ...]:
        """Tokens of each chunk; what is no chunk's, such as special tokens, is counted with the first."""
        counts = np.bincount(self.owners[self.owners >= 0])
        counts[0] += np.count_nonzero(self.owners < 0)
        return tuple(counts.tolist())


def join_chunks(
    description: ModelDescription, tokenizer: Tokenizer, texts: Sequence[str], reading: Reading, field: str
) -> JoinedChunks:
    """The chunks `texts` as one document after its prompt.

    Raises `InputTooLong` where the model does not read as much at once: the last chunks would have no row.
    Raises `InvalidRequest` for a chunk without tokens.
    """
    prompt = find_prompt(
        description.prompts, "", replace(reading, purpose=reading.purpose or Purpose.DOCUMENT)
    )
    (read,) = tokenizer.encode_with_spans(
        [prompt + SEPARATOR.join(texts)],
        truncation=replace(reading.truncation, is_allowed=False),
        field=field,
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
    for index in range(len(texts)):
        if index not in owners:
            raise InvalidRequest(
                f"`{field}[{index}]` has no tokens of this model for `late_chunking` to use. Leave it out.",
                field=f"{field}[{index}]",
            )
    return JoinedChunks(sequence, owners)


def average_chunks(rows: FloatArray, owners: IntArray, kept: npt.NDArray[np.bool_]) -> FloatArray:
    """The mean of the rows (tokens, dim) of each chunk's tokens: (chunks, dim).

    Tokens that are not `kept` count only where a chunk has no others.
    """
    means = []
    for chunk in range(int(owners.max()) + 1):
        own = owners == chunk
        chosen = own & kept
        means.append(rows[chosen if chosen.any() else own].mean(axis=0))
    return np.stack(means)


def _require_texts(inputs: Sequence[TextOrIds], field: str) -> list[str]:
    texts = [item for item in inputs if isinstance(item, str)]
    if len(texts) < len(inputs):
        raise InvalidRequest(
            "`late_chunking` joins texts, and cannot join token ids. Send text.", field=field
        )
    return texts
