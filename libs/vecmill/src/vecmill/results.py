"""The results of requests, which the operations return. Arrays are C-contiguous and in input order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self, overload

import numpy as np

from vecmill.values.aliases import FloatArray, IntArray
from vecmill.values.embeddings import SparseEmbedding


@dataclass(frozen=True, slots=True)
class Timings:
    """The seconds that one request spent in each stage.

    `room_s` is the wait for room in the queue. Then come `tokenize_s`, `queue_s`, the wait in the queue, and
    `inference_s`, from the first batch to the last. `total_s` is the time of the whole call.
    """

    tokenize_s: float
    queue_s: float
    inference_s: float
    total_s: float
    room_s: float = 0.0

    def after_room(self, room_s: float) -> "Timings":
        """Return the timings of a request that had waited so long for room."""
        return replace(self, total_s=self.total_s + room_s, room_s=room_s)


NO_TIME = Timings(0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Truncated:
    """An input that was cut, and the number of tokens that were cut off.

    `index` is the number of the input: of a text, or of a pair of a reranker. In a rerank request to a model
    that embeds queries and documents, and to a listwise reranker, the queries follow the documents. Unless
    `is_exact`, at least `token_count` tokens were cut off.
    """

    index: int
    token_count: int
    is_exact: bool = True


class Result(Protocol):
    """The fields that all results have."""

    @property
    def token_count(self) -> int:
        """The number of tokens of the whole request."""
        ...

    @property
    def timings(self) -> Timings:
        """The seconds that the request spent in each stage."""
        ...

    @property
    def truncated(self) -> tuple[Truncated, ...]:
        """The inputs that were truncated, in order, each with the number of tokens that were cut off."""
        ...

    @property
    def truncated_count(self) -> int:
        """The number of inputs that were truncated."""
        ...


class CountsTruncated:
    """A base of results that counts the inputs in `truncated`."""

    __slots__ = ()

    truncated: tuple[Truncated, ...]

    @property
    def truncated_count(self) -> int:
        """The number of inputs that were truncated."""
        return len(self.truncated)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of a text: number `index` of the chunks of input number `text`.

    It stands at `start:end` of the input, in Unicode code points. `token_count` is the number of its tokens
    without special tokens and prompt.
    """

    text: int
    index: int
    start: int
    end: int
    token_count: int


@dataclass(frozen=True, slots=True)
class EmbedResult(CountsTruncated):
    """The answer to `Embed`: `embeddings` (inputs, dim) float32.

    If the request asked for an embedding of each chunk, there is one for each of `chunks`, and those of the
    first input come first. `token_counts[i]` is the number of tokens of input `i` after truncation, special
    tokens included, or of all that was computed for its chunks. `ranges`
    (2, dim) float32 is set if the request asked for int8 or uint8. It holds the minimum and the maximum of
    each dimension, and is the same for every request to a model. `cached_count` inputs were not computed, but
    found in the embedding cache. `pixel_count` is the number of pixels that were read of all pictures, after
    resizing.
    """

    embeddings: FloatArray
    token_counts: tuple[int, ...]
    timings: Timings
    ranges: FloatArray | None = None
    truncated: tuple[Truncated, ...] = ()
    cached_count: int = 0
    chunks: tuple[Chunk, ...] | None = None
    pixel_count: int = 0

    @property
    def token_count(self) -> int:
        """The number of tokens of the whole request."""
        return sum(self.token_counts)


@dataclass(frozen=True, slots=True)
class RerankResult(CountsTruncated):
    """The answer to `Rerank`: `scores` (documents,) float32."""

    scores: FloatArray
    token_count: int
    timings: Timings
    truncated: tuple[Truncated, ...] = ()


@dataclass(frozen=True, slots=True)
class ClassifyResult(CountsTruncated):
    """The answer to `Classify`: `scores` (inputs, labels) float32, and the names of the labels."""

    labels: tuple[str, ...]
    scores: FloatArray
    token_count: int
    timings: Timings
    truncated: tuple[Truncated, ...] = ()

    def ranked(self, index: int) -> list[tuple[str, float]]:
        """Return the labels of input `index` with their scores, the best first."""
        scores = self.scores[index]
        best = (-scores).argsort(kind="stable").tolist()
        return [(self.labels[label], float(scores[label])) for label in best]


@dataclass(frozen=True, slots=True)
class Entity:
    """A token, or several adjacent tokens, with the label that the model assigned.

    `word` is the text of the tokens, found at `start:end` of the input, in characters. `index` is the
    position of the token among all tokens of the input, `None` for several tokens.
    """

    label: str
    score: float
    word: str
    start: int
    end: int
    index: int | None = None


@dataclass(frozen=True, slots=True)
class ClassifyTokensResult(CountsTruncated):
    """The answer to `ClassifyTokens`: the entities of each text, in the order of the text."""

    entities: tuple[tuple[Entity, ...], ...]
    token_count: int
    timings: Timings
    truncated: tuple[Truncated, ...] = ()


@dataclass(frozen=True, slots=True)
class ScoreTokensResult(CountsTruncated):
    """The answer to `ScoreTokens`: for each text (tokens, labels) float32, and the names of the labels.

    The tokens include special tokens.
    """

    labels: tuple[str, ...]
    scores: tuple[FloatArray, ...]
    token_count: int
    timings: Timings
    truncated: tuple[Truncated, ...] = ()


@dataclass(frozen=True, slots=True)
class EmbedSparseResult(CountsTruncated):
    """The answer to `EmbedSparse`: a sparse embedding of each text."""

    embeddings: tuple[SparseEmbedding, ...]
    token_count: int
    timings: Timings
    truncated: tuple[Truncated, ...] = ()


@dataclass(frozen=True, slots=True)
class EmbedTokensResult(CountsTruncated):
    """The answer to `EmbedTokens`: for each text (tokens, dim) float32."""

    embeddings: tuple[FloatArray, ...]
    token_count: int
    timings: Timings
    truncated: tuple[Truncated, ...] = ()


@dataclass(frozen=True, slots=True)
class EmbedOutputsResult(CountsTruncated):
    """The answer to `EmbedOutputs`; outputs that were not asked for are `None`.

    `dense` (texts, dim) float32, a sparse embedding of each text, and for each text `vectors` (tokens - 1,
    dim) float32. `cached_count` texts were found in the embedding cache.
    """

    dense: FloatArray | None
    sparse: tuple[SparseEmbedding, ...] | None
    vectors: tuple[FloatArray, ...] | None
    token_count: int
    timings: Timings
    truncated: tuple[Truncated, ...] = ()
    cached_count: int = 0


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a text. `piece` is its spelling in the vocabulary, `start:end` its position in characters.

    Special tokens have no position.
    """

    token_id: int
    piece: str
    is_special: bool
    start: int | None
    end: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Tokens(Sequence[Token]):
    """The tokens of a text, in a small part of the memory of `Token` objects, which are made when asked for.

    `ids`, `starts` and `ends` are (tokens,) int64; `starts` is -1 for special tokens, which have no position.
    """

    ids: IntArray
    pieces: tuple[str, ...]
    starts: IntArray
    ends: IntArray

    @classmethod
    def of(cls, ids: list[int], pieces: list[str], is_special: list[int], offsets: IntArray) -> Self:
        """Make the tokens of equally many ids, pieces, marks and `offsets` (tokens, 2)."""
        has_place = np.frombuffer(bytes(is_special), np.uint8) == 0
        starts = np.where(has_place, offsets[:, 0], -1)
        return cls(np.array(ids, np.int64), tuple(pieces), starts, np.ascontiguousarray(offsets[:, 1]))

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> Token: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Token, ...]: ...

    def __getitem__(self, index: int | slice) -> Token | tuple[Token, ...]:
        if isinstance(index, slice):
            return tuple(self[position] for position in range(*index.indices(len(self))))
        start = int(self.starts[index])
        place = (None, None) if start < 0 else (start, int(self.ends[index]))
        return Token(int(self.ids[index]), self.pieces[index], start < 0, *place)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(self.pieces)


@dataclass(frozen=True, slots=True)
class TokenizeResult(CountsTruncated):
    """The answer to `Tokenize`: the tokens of each text, and the longest input of the model."""

    tokens: tuple[Tokens, ...]
    max_tokens: int
    timings: Timings = NO_TIME
    truncated: tuple[Truncated, ...] = ()

    @property
    def token_count(self) -> int:
        """The number of tokens of the whole request."""
        return sum(map(len, self.tokens))


@dataclass(frozen=True, slots=True)
class DetokenizeResult(CountsTruncated):
    """The answer to `Detokenize`: the text of each list of token ids."""

    texts: tuple[str, ...]
    token_count: int
    timings: Timings = NO_TIME
    truncated: tuple[Truncated, ...] = ()
