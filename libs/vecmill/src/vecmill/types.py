"""The values that pass between the stages: token sequences, batches, rows, results.

Plain frozen dataclasses over numpy arrays. Comments say who sets a field.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from vecmill.reading import DEFAULT_READING, Reading

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """One text as the model reads it, special tokens included. Set by `tokens`.

    `token_ids` and `token_type_ids` have shape (n,), int64. The first `prompt_length` positions
    belong to a prompt (a model may leave them out of pooling). `token_count_before_truncation` is
    what the text had before it was cut to the model's longest input. `key` is equal for two
    sequences exactly when an engine computes the same row for them.
    """

    token_ids: IntArray
    token_type_ids: IntArray
    prompt_length: int
    token_count_before_truncation: int
    key: bytes
    unseen: int = 0  # so many of the last tokens are seen by no token; they see the others

    @classmethod
    def of(
        cls,
        token_ids: Sequence[int],
        token_type_ids: Sequence[int] | None = None,
        *,
        prompt_length: int = 0,
        token_count_before_truncation: int | None = None,
        unseen: int = 0,
    ) -> Self:
        """Build a sequence from plain ids; token types default to 0."""
        ids = np.asarray(token_ids, dtype=np.int64)
        types = np.zeros_like(ids) if token_type_ids is None else np.asarray(token_type_ids, np.int64)
        key = b"%d:%d:%d:" % (prompt_length, unseen, len(ids)) + ids.tobytes()
        key += types.tobytes() if types.any() else b""
        count = len(ids) if token_count_before_truncation is None else token_count_before_truncation
        return cls(ids, types, prompt_length, count, key, unseen)

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class Batch:
    """Texts for one engine call, ragged: nothing is padded here.

    Text `i` owns positions `offsets[i]:offsets[i + 1]` of `token_ids` and `token_type_ids`
    (both (tokens,), int64); `offsets` is (texts + 1,), int64; `prompt_lengths` is (texts,), int64, and so
    is `seen_lengths`: how many of a text's tokens, from its first, other tokens see.
    """

    token_ids: IntArray
    token_type_ids: IntArray
    offsets: IntArray
    prompt_lengths: IntArray
    seen_lengths: IntArray

    @classmethod
    def of(cls, sequences: Sequence[TokenSequence]) -> Self:
        """Lay sequences end to end. `sequences` must not be empty."""
        offsets = np.zeros(len(sequences) + 1, np.int64)
        np.cumsum([len(sequence) for sequence in sequences], out=offsets[1:])
        return cls(
            token_ids=np.concatenate([sequence.token_ids for sequence in sequences]),
            token_type_ids=np.concatenate([sequence.token_type_ids for sequence in sequences]),
            offsets=offsets,
            prompt_lengths=np.array([sequence.prompt_length for sequence in sequences], np.int64),
            seen_lengths=np.array([len(sequence) - sequence.unseen for sequence in sequences], np.int64),
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> IntArray:
        """Tokens per text, (texts,), int64."""
        return np.diff(self.offsets)


class RowForm(StrEnum):
    """What an engine computes for a text."""

    TEXT = "text"  # one row
    TOKEN = "token"  # one row for each of its tokens
    SPARSE = "sparse"  # one row that is mostly zeros, without them


@dataclass(frozen=True, slots=True)
class SparseRow:
    """A row without its zeros: `columns` (nonzeros,) int64, ascending, and `values` (nonzeros,) float32."""

    columns: IntArray
    values: FloatArray


# What one text gets: (1, dim) or (tokens, dim) float32, or a sparse row.
Row = FloatArray | SparseRow


@dataclass(frozen=True, slots=True)
class Rows:
    """What an engine returns: finished rows, as values and offsets. Set by engines.

    Text `i` owns `values[offsets[i]:offsets[i + 1]]`. With one row a text `values` is
    (texts, dim); with one row a token it is (tokens, dim); sparse rows have `values` (nonzeros,)
    and `columns` (nonzeros,), int64. `values` is float32. `computed_tokens` counts the positions
    that were computed, padding included.
    """

    values: FloatArray
    offsets: IntArray
    computed_tokens: int
    columns: IntArray | None = None

    @classmethod
    def one_per_text(cls, values: FloatArray, *, computed_tokens: int) -> Self:
        """Rows where text `i` owns row `i`."""
        return cls(values, np.arange(len(values) + 1, dtype=np.int64), computed_tokens)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, index: int) -> FloatArray:
        """The values of text `index`: (rows of that text, dim), or (nonzeros,) if sparse."""
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def parts(self) -> list[Row]:
        """What each text gets, in order."""
        bounds = self.offsets.tolist()
        pairs = pairwise(bounds)
        if self.columns is None:
            return [self.values[start:end] for start, end in pairs]
        return [SparseRow(self.columns[start:end], self.values[start:end]) for start, end in pairs]


@dataclass(frozen=True, slots=True)
class CostModel:
    """How long a call takes, measured in warm-up: `fixed_s + per_token_s * tokens`."""

    fixed_s: float
    per_token_s: float

    def seconds(self, tokens: int) -> float:
        """The expected time of one call over `tokens` tokens."""
        return self.fixed_s + self.per_token_s * tokens


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What an engine says of itself. `dim` is the length of a row, `max_tokens` the longest input.

    `lane_widths` lists the numbers of cores that one call may be given, ascending. `parallel_calls` is how
    many calls may run at once where not the cores decide that, and `batch_tokens` how many tokens a call
    should hold where the engine or its plan knows.
    """

    name: str
    precision: str
    device: str
    dim: int
    max_tokens: int
    lane_widths: tuple[int, ...]
    form: RowForm = RowForm.TEXT
    parallel_calls: int | None = None
    batch_tokens: int | None = None

    def lanes_on(self, cores: int) -> int:
        """How many calls may run at once on `cores` cores, at least 1."""
        calls = max(1, cores // self.lane_widths[0])
        return min(calls, self.parallel_calls or calls)


# One input to classify: a text, or two of which something is asked together.
TextOrPair = str | tuple[str, str]

# One text to embed: itself, or the model's own token ids for it.
TextOrIds = str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EmbedRequest:
    """What `Mill.submit` takes. Set by the caller.

    `dimensions` cuts each row, and renormalises it where the model normalises. `normalize` true scales rows
    to length 1 whatever the model; false does no more than the model does itself. `timeout_s` may only lower
    the configured one. `field` is the name under which errors speak of the inputs. With `late_chunking` the
    inputs are read together, as chunks of one text; only multi-vector models can. A request that `is_bulk`
    gives way to others however few its inputs are, and waits as long as it takes unless `timeout_s` is given.
    """

    inputs: tuple[TextOrIds, ...]
    reading: Reading = DEFAULT_READING
    dimensions: int | None = None
    normalize: bool | None = None
    timeout_s: float | None = None
    field: str = "input"
    late_chunking: bool = False
    is_bulk: bool = False


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the time of one request went, in seconds. Set by the mill."""

    tokenize_s: float
    queue_s: float
    inference_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class EmbedResult:
    """What `Mill.submit` returns: `rows` (inputs, dim) float32, C-contiguous, in input order.

    `token_counts[i]` is what input `i` cost after truncation, special tokens included.
    """

    rows: FloatArray
    token_counts: tuple[int, ...]
    timings: Timings

    @property
    def token_count(self) -> int:
        """Tokens of the whole request."""
        return sum(self.token_counts)


@dataclass(frozen=True, slots=True)
class RerankResult:
    """What `Mill.rerank` returns: `scores` (documents,) float32, in input order."""

    scores: FloatArray
    token_count: int
    timings: Timings


@dataclass(frozen=True, slots=True)
class ClassifyResult:
    """What `Mill.classify` returns: `scores` (inputs, labels) float32, in input order; labels by name."""

    labels: tuple[str, ...]
    scores: FloatArray
    token_count: int
    timings: Timings

    def ranked(self, index: int) -> list[tuple[str, float]]:
        """The labels of input `index` with their scores, the best first."""
        scores = self.scores[index]
        best = (-scores).argsort(kind="stable").tolist()
        return [(self.labels[label], float(scores[label])) for label in best]


@dataclass(frozen=True, slots=True)
class Entity:
    """What a token, or several next to each other, were found to be.

    `word` is what the tokens spell, and stands at `start:end` of the text, in characters. `index` is the
    token's place among all tokens of the text, `None` for several.
    """

    label: str
    score: float
    word: str
    start: int
    end: int
    index: int | None = None


@dataclass(frozen=True, slots=True)
class ClassifyTokensResult:
    """What `Mill.classify_tokens` returns: the entities of each text, in the order of the text."""

    entities: tuple[tuple[Entity, ...], ...]
    token_count: int
    timings: Timings


@dataclass(frozen=True, slots=True)
class SparseResult:
    """What `Mill.embed_sparse` returns: a row for each text, in input order."""

    rows: tuple[SparseRow, ...]
    token_count: int
    timings: Timings


@dataclass(frozen=True, slots=True)
class MultiVectorResult:
    """What `Mill.embed_all` returns: for each text, in input order, (tokens, dim) float32."""

    rows: tuple[FloatArray, ...]
    token_count: int
    timings: Timings


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a text: `piece` is how the vocabulary spells it; it stands at `start:end`, in characters.

    Special tokens stand nowhere.
    """

    token_id: int
    piece: str
    is_special: bool
    start: int | None
    end: int | None


@dataclass(frozen=True, slots=True)
class TokenizeResult:
    """What `Mill.tokenize` returns: the tokens of each text, in input order."""

    tokens: tuple[tuple[Token, ...], ...]

    @property
    def token_count(self) -> int:
        """Tokens of the whole request."""
        return sum(map(len, self.tokens))


JsonValue = Any  # whatever a JSON document can hold
