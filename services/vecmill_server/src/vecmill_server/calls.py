"""What a request can ask of a model, whatever the dialect it is written in: one class for each operation.

A call is read from a document by a family in `dialects`, and run here. It knows nothing of HTTP or JSON.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from vecmill.errors import DeadlineExceeded, InvalidRequest
from vecmill.mill import Mill
from vecmill.models import Task
from vecmill.reading import DEFAULT_READING, Reading
from vecmill.rows import RowKind, quantize_rows
from vecmill.types import (
    ClassifyResult,
    ClassifyTokensResult,
    EmbedRequest,
    FloatArray,
    MultiVectorResult,
    RerankResult,
    SparseResult,
    TextOrIds,
    TextOrPair,
    Timings,
    TokenizeResult,
)

NO_TIME = Timings(0.0, 0.0, 0.0, 0.0)


class Result(Protocol):
    """What running a call gives, besides what the operation is for."""

    @property
    def token_count(self) -> int:
        """Tokens of the whole request."""
        ...

    @property
    def timings(self) -> Timings:
        """Where the time went."""
        ...


class Call(Protocol):
    """What a request asks, told apart from how it is written."""

    @property
    def tasks(self) -> Sequence[Task]:
        """Those of models that can answer, the best first."""
        ...

    @property
    def model(self) -> str | None:
        """The model that the request names."""
        ...

    @property
    def sizes(self) -> Sequence[int]:
        """The characters, or token ids, of each input."""
        ...

    async def run(self, mill: Mill, timeout_s: float | None) -> Any:
        """Ask the model. Raises as `Mill.submit` does."""
        ...


@dataclass(frozen=True, slots=True)
class Embedded:
    """Rows (inputs, dim) float32, and what 8 bits of them need."""

    rows: FloatArray
    token_counts: tuple[int, ...]
    timings: Timings
    ranges: FloatArray | None = None

    @property
    def token_count(self) -> int:
        """Tokens of the whole request."""
        return sum(self.token_counts)

    def rows_as(self, kind: RowKind) -> npt.NDArray[np.generic]:
        """The rows in fewer bits."""
        return quantize_rows(self.rows, kind, self.ranges)


@dataclass(frozen=True, slots=True)
class EmbedCall:
    """Texts to rows, which will be written as `kinds`; `is_bulk` gives way to other requests."""

    model: str | None
    inputs: tuple[TextOrIds, ...]
    reading: Reading = DEFAULT_READING
    dimensions: int | None = None
    normalize: bool | None = None
    kinds: tuple[RowKind, ...] = (RowKind.FLOAT,)
    field: str = "input"
    late_chunking: bool = False
    is_bulk: bool = False

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Late chunking needs a row for each token."""
        return (Task.MULTI_VECTOR,) if self.late_chunking else (Task.EMBED,)

    @property
    def sizes(self) -> list[int]:
        """The characters, or token ids, of each input."""
        return list(map(len, self.inputs))

    async def run(self, mill: Mill, timeout_s: float | None) -> Embedded:
        """Ask the model. Raises as `Mill.submit` does."""
        self._check_bits(mill)
        result = await mill.submit(
            EmbedRequest(
                self.inputs,
                self.reading,
                self.dimensions,
                self.normalize,
                timeout_s,
                field=self.field,
                late_chunking=self.late_chunking,
                is_bulk=self.is_bulk,
            )
        )
        ranges = None
        if any(kind.needs_ranges for kind in self.kinds):
            left_s = None if timeout_s is None else timeout_s - result.timings.total_s
            ranges = await self._find_ranges(mill, left_s)
        return Embedded(result.rows, result.token_counts, result.timings, ranges)

    async def _find_ranges(self, mill: Mill, timeout_s: float | None) -> FloatArray:
        """What rows of 8 bits need. The first time that takes long, and goes on when nobody waits for it."""
        try:
            async with asyncio.timeout(timeout_s):
                return await mill.ranges(self.dimensions, normalize=self.normalize)
        except TimeoutError:
            raise DeadlineExceeded(
                "The model's range of numbers, of which rows of 8 bits are steps, is still being found. Try "
                "again, or allow more time."
            ) from None

    def _check_bits(self, mill: Mill) -> None:
        numbers = self.dimensions or mill.description.dim
        if numbers % 8 and any(kind.needs_bytes for kind in self.kinds):
            raise InvalidRequest(
                f"Rows of {numbers} numbers do not fill whole bytes of bits. Ask for another type, "
                "or for `dimensions` that are a multiple of 8.",
                field="dimensions",
            )


@dataclass(frozen=True, slots=True)
class RerankCall:
    """Scores of documents: for the one query, or each for its own."""

    tasks: ClassVar[tuple[Task, ...]] = (Task.RERANK, Task.EMBED, Task.MULTI_VECTOR, Task.SPARSE)

    model: str | None
    queries: tuple[str, ...]
    documents: tuple[str, ...]
    raw_scores: bool = False
    reading: Reading = DEFAULT_READING
    instruction: str | None = None

    @property
    def sizes(self) -> list[int]:
        """The characters of each document and its query."""
        if len(self.queries) == 1:
            return [len(self.queries[0]) + len(document) for document in self.documents]
        return [
            len(query) + len(document) for query, document in zip(self.queries, self.documents, strict=False)
        ]

    async def run(self, mill: Mill, timeout_s: float | None) -> RerankResult:
        """Ask the model. Raises as `Mill.submit` does."""
        return await mill.rerank(
            self.queries,
            self.documents,
            raw_scores=self.raw_scores,
            instruction=self.instruction,
            reading=self.reading,
            timeout_s=timeout_s,
        )


@dataclass(frozen=True, slots=True)
class ClassifyCall:
    """Texts and pairs to scores of labels."""

    tasks: ClassVar[tuple[Task, ...]] = (Task.CLASSIFY, Task.RERANK)

    model: str | None
    inputs: tuple[TextOrPair, ...]
    raw_scores: bool = False
    reading: Reading = DEFAULT_READING
    field: str = "input"

    @property
    def sizes(self) -> list[int]:
        """The characters of each text or pair."""
        return [len(item) if isinstance(item, str) else sum(map(len, item)) for item in self.inputs]

    async def run(self, mill: Mill, timeout_s: float | None) -> ClassifyResult:
        """Ask the model. Raises as `Mill.submit` does."""
        return await mill.classify(
            self.inputs,
            raw_scores=self.raw_scores,
            reading=self.reading,
            timeout_s=timeout_s,
            field=self.field,
        )


@dataclass(frozen=True, slots=True)
class TextsCall:
    """What calls about texts alone have in common."""

    model: str | None
    texts: tuple[str, ...]
    reading: Reading = DEFAULT_READING
    field: str = "input"

    @property
    def sizes(self) -> list[int]:
        """The characters of each text."""
        return list(map(len, self.texts))


@dataclass(frozen=True, slots=True)
class EntitiesCall(TextsCall):
    """Texts to the entities in them."""

    tasks: ClassVar[tuple[Task, ...]] = (Task.CLASSIFY_TOKENS,)

    aggregate: bool = True

    async def run(self, mill: Mill, timeout_s: float | None) -> ClassifyTokensResult:
        """Ask the model. Raises as `Mill.submit` does."""
        return await mill.classify_tokens(
            self.texts,
            aggregate=self.aggregate,
            truncation=self.reading.truncation,
            timeout_s=timeout_s,
            field=self.field,
        )


@dataclass(frozen=True, slots=True)
class SparseCall(TextsCall):
    """Texts to sparse rows."""

    tasks: ClassVar[tuple[Task, ...]] = (Task.SPARSE,)

    async def run(self, mill: Mill, timeout_s: float | None) -> SparseResult:
        """Ask the model. Raises as `Mill.submit` does."""
        return await mill.embed_sparse(
            self.texts, reading=self.reading, timeout_s=timeout_s, field=self.field
        )


@dataclass(frozen=True, slots=True)
class MultiVectorCall(TextsCall):
    """Texts to a row for each token."""

    tasks: ClassVar[tuple[Task, ...]] = (Task.MULTI_VECTOR,)

    async def run(self, mill: Mill, timeout_s: float | None) -> MultiVectorResult:
        """Ask the model. Raises as `Mill.submit` does."""
        return await mill.embed_all(self.texts, reading=self.reading, timeout_s=timeout_s, field=self.field)


@dataclass(frozen=True, slots=True)
class Tokenized:
    """The tokens of texts, and the longest input of the model that they are for."""

    result: TokenizeResult
    max_tokens: int
    timings: Timings = NO_TIME

    @property
    def token_count(self) -> int:
        """Tokens of the whole request."""
        return self.result.token_count


@dataclass(frozen=True, slots=True)
class TokenizeCall:
    """Texts to tokens."""

    tasks: ClassVar[tuple[Task, ...]] = ()

    model: str | None
    texts: tuple[str, ...]
    special: bool = True
    field: str = "input"

    @property
    def sizes(self) -> list[int]:
        """The characters of each text."""
        return list(map(len, self.texts))

    async def run(self, mill: Mill, timeout_s: float | None) -> Tokenized:
        """Ask the model. Raises as `Mill.tokenize` does."""
        result = await mill.tokenize(self.texts, special=self.special, field=self.field)
        return Tokenized(result, mill.description.max_tokens)


@dataclass(frozen=True, slots=True)
class Detokenized:
    """What token ids spell."""

    texts: tuple[str, ...]
    token_count: int
    timings: Timings = NO_TIME


@dataclass(frozen=True, slots=True)
class DetokenizeCall:
    """Token ids to texts."""

    tasks: ClassVar[tuple[Task, ...]] = ()

    model: str | None
    ids: tuple[tuple[int, ...], ...]
    skip_special: bool = True
    field: str = "tokens"

    @property
    def sizes(self) -> list[int]:
        """The token ids of each text."""
        return list(map(len, self.ids))

    async def run(self, mill: Mill, timeout_s: float | None) -> Detokenized:
        """Ask the model. Raises as `Mill.detokenize` does."""
        texts = await mill.detokenize(self.ids, skip_special=self.skip_special, field=self.field)
        return Detokenized(texts, sum(self.sizes))
