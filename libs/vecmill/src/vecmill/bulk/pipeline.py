"""The pipeline that embeds several parts at once and stores each part when it is complete.

Parts overlap, so that the batcher always has enough waiting texts to form batches of similar lengths. The
batcher takes the oldest texts first, so parts end in about the order in which they began. Files are read and
written in threads.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Protocol, TypeVar

import numpy as np

from vecmill.bulk.chunk_table import join_tables
from vecmill.bulk.embedder import EmbeddedTexts, Embedder, Vectors
from vecmill.bulk.picture_inputs import PictureFile
from vecmill.bulk.records import InputPart, Record
from vecmill.errors import (
    DeviceLost,
    EngineError,
    InvalidCorpus,
    NonFiniteOutput,
    RequestError,
    TokenizationFailed,
    VecmillError,
)
from vecmill.values.aliases import IntArray

logger = logging.getLogger(__name__)

PARTS_AT_ONCE = 16
CALL_BYTES = 8 * 2**20  # a body of 11 MiB to a server

T = TypeVar("T")

Refuse = Callable[[Record, VecmillError], None]


class EmbedProgress(Protocol):
    """A receiver of progress counts."""

    def add_existing(self, texts: int) -> None:
        """Count texts that an earlier run has embedded."""
        ...

    def add_embedded(self, texts: int, tokens: int) -> None:
        """Count newly embedded texts and their tokens."""
        ...


class EmbeddedParts(Protocol):
    """A store of embedded parts, called from threads."""

    def contains(self, number: int, count: int) -> bool:
        """Return whether the part of `count` texts is stored."""
        ...

    def write(
        self,
        number: int,
        embeddings: Vectors,
        left_out: Sequence[int],
        truncated_tokens: Sequence[int | None],
        chunks: IntArray | None,
    ) -> None:
        """Store the embeddings of a part; see `EmbeddedTexts`."""
        ...


async def embed_parts(
    cut: Iterator[InputPart],
    embedder: Embedder,
    store: EmbeddedParts,
    progress: EmbedProgress,
    *,
    unit: str = "row",
    skips_invalid: bool = False,
    parts_at_once: int | None = None,
) -> None:
    """Embed and store all missing parts. `unit`, line or row, is the unit of the places of records.

    At most `parts_at_once` parts are embedded or stored at a time; with one, `cut` is not read meanwhile.

    Raises the same errors as `Embedder.embed`, and `InvalidCorpus` for a text that cannot be embedded. With
    `skips_invalid`, texts that cause an error are left out instead.
    """
    refuse = partial(refuse_record, unit, skips_invalid)
    running: set[asyncio.Task[None]] = set()
    try:
        while (part := await asyncio.to_thread(next, cut, None)) is not None:
            if await asyncio.to_thread(store.contains, part.number, len(part)):
                progress.add_existing(len(part))
                continue
            running.add(asyncio.create_task(_embed_part(part, embedder, store, progress, refuse)))
            if len(running) >= (parts_at_once or PARTS_AT_ONCE):
                running = await _await_one(running)
        while running:
            running = await _await_one(running)
    finally:
        await _cancel(running)


async def _await_one(running: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    """Wait until at least one part is complete or has failed, and return the tasks that still run."""
    ended, left = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    for task in ended:
        task.result()
    return left


async def _embed_part(
    part: InputPart, embedder: Embedder, store: EmbeddedParts, progress: EmbedProgress, refuse: Refuse
) -> None:
    size = embedder.call_texts

    async def call(records: Sequence[Record]) -> EmbeddedTexts:
        found = await embed_records(records, embedder, refuse)
        if found.reused:
            progress.add_existing(found.reused)
        progress.add_embedded(len(records) - found.reused, found.token_count)
        return found

    calls = cut_calls(part.records, size)
    starts = [0, *accumulate(map(len, calls))][:-1]
    found = await gather_all([call(records) for records in calls])
    embeddings = np.concatenate([one.embeddings for one in found])
    left_out = [at + index for at, one in zip(starts, found, strict=True) for index in one.left_out]
    dropped = [tokens for one in found for tokens in one.dropped]
    chunks = join_tables([one.chunks for one in found], starts)
    await asyncio.to_thread(store.write, part.number, embeddings, left_out, dropped, chunks)


def cut_calls(records: Sequence[Record], most: int) -> list[Sequence[Record]]:
    """Divide records into calls of at most `most` texts or pictures, and of `CALL_BYTES` of pictures."""
    calls, start, held_bytes = [], 0, 0
    for at, record in enumerate(records):
        value = record.values[0]
        size = 0 if isinstance(value, str) else len(value)
        if at - start >= most or (at > start and held_bytes + size > CALL_BYTES):
            calls.append(records[start:at])
            start, held_bytes = at, 0
        held_bytes += size
    return [*calls, records[start:]] if records else []


async def embed_records(records: Sequence[Record], embedder: Embedder, refuse: Refuse) -> EmbeddedTexts:
    """Embed the texts of some records in one call, or one by one if the call fails.

    Calls `refuse` for each text that cannot be embedded. Raises the same errors as `Embedder.embed`.
    """
    try:
        return await embedder.embed([record.values[0] for record in records])
    except DeviceLost:
        raise
    except (RequestError, EngineError):
        return await _embed_singly(records, embedder, refuse)


async def _embed_singly(records: Sequence[Record], embedder: Embedder, refuse: Refuse) -> EmbeddedTexts:
    """Embed texts one by one, to find the texts that cannot be embedded."""
    shape = (0,) if embedder.dtype.hasobject else (0, embedder.dim)
    found = [EmbeddedTexts(np.empty(shape, embedder.dtype), 0)]
    left_out, places = [], [0]
    for index, record in enumerate(records):
        try:
            found.append(await embedder.embed([record.values[0]]))
            places.append(index)
        except DeviceLost:
            raise
        except (RequestError, EngineError) as error:
            refuse(record, error)
            left_out.append(index)
    embeddings = np.concatenate([one.embeddings for one in found])
    tokens = sum(one.token_count for one in found)
    dropped = [each for one in found for each in one.dropped]
    chunks = join_tables([one.chunks for one in found], places)
    reused = sum(one.reused for one in found)
    return EmbeddedTexts(embeddings, tokens, left_out, dropped, chunks, reused)


def refuse_record(unit: str, skips_invalid: bool, record: Record, error: VecmillError) -> None:
    """Log a text that cannot be embedded. Raises `InvalidCorpus` if such texts are not left out."""
    value = record.values[0]
    what = "text" if isinstance(value, str) else "picture"
    name = f" ({value.name!r})" if isinstance(value, PictureFile) else ""
    problem = f"The {what} of {unit} {record.place}{name} cannot be embedded: {error.message}"
    # A failing engine or server may fail for every text, and all texts would be left out.
    if not isinstance(error, RequestError | TokenizationFailed | NonFiniteOutput):
        raise InvalidCorpus(problem) from error
    if not skips_invalid:
        raise InvalidCorpus(
            f"{problem} To skip such {what}s, add --skip-invalid to the same command; it continues from here."
        ) from error
    logger.warning("%s The %s is left out.", problem, what)


async def gather_all(coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Return all results in order; the first failure cancels the other tasks."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await _cancel(tasks)


async def _cancel(tasks: Sequence[asyncio.Task[Any]] | set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
