"""Several parts at once, each kept as soon as it is whole.

Parts under way overlap, so that what is left of one never runs alone: there is always enough waiting for the
batcher to find neighbours in length. It takes the oldest first, so parts end about in the order they began.
Files are read and written in threads.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

from vecmill.corpus.embedder import Embedded, Embedder
from vecmill.corpus.parts import Parts
from vecmill.corpus.records import Part, Record
from vecmill.errors import (
    DeviceLost,
    EngineError,
    InvalidCorpus,
    NonFiniteOutput,
    RequestError,
    VecmillError,
)

logger = logging.getLogger(__name__)

PARTS_AT_ONCE = 16

T = TypeVar("T")

Refuse = Callable[[Record, VecmillError], None]


class Progress(Protocol):
    """Is told how it goes."""

    def found(self, texts: int) -> None:
        """So many more texts were embedded by an earlier run."""
        ...

    def embedded(self, texts: int, tokens: int) -> None:
        """So many more texts were embedded, which had so many tokens."""
        ...


async def embed_parts(
    cut: Iterator[Part],
    embedder: Embedder,
    parts: Parts,
    progress: Progress,
    *,
    unit: str = "row",
    skips_invalid: bool = False,
) -> None:
    """Embed all parts that are not there. `unit` is what the places of records count.

    Raises what `Embedder.embed` raises, and `InvalidCorpus` for a text that cannot be embedded; with
    `skips_invalid`, those that are themselves the reason are left out.
    """
    refuse = partial(_refuse, unit, skips_invalid)
    running: set[asyncio.Task[None]] = set()
    try:
        while (part := await asyncio.to_thread(next, cut, None)) is not None:
            if await asyncio.to_thread(parts.holds, part.number, len(part)):
                progress.found(len(part))
                continue
            running.add(asyncio.create_task(_embed_part(part, embedder, parts, progress, refuse)))
            if len(running) >= PARTS_AT_ONCE:
                running = await _await_one(running)
        while running:
            running = await _await_one(running)
    finally:
        await _cancel(running)


async def _await_one(running: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    """Wait until a part is whole or has failed; give those that go on."""
    ended, left = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    for task in ended:
        task.result()
    return left


async def _embed_part(
    part: Part, embedder: Embedder, parts: Parts, progress: Progress, refuse: Refuse
) -> None:
    size = embedder.call_texts

    async def call(records: Sequence[Record]) -> Embedded:
        found = await _embed_records(records, embedder, refuse)
        progress.embedded(len(records), found.tokens)
        return found

    starts = range(0, len(part), size)
    found = await _gather([call(part.records[at : at + size]) for at in starts])
    rows = np.concatenate([one.rows for one in found])
    left_out = [at + place for at, one in zip(starts, found, strict=True) for place in one.left_out]
    await asyncio.to_thread(parts.write, part.number, rows, left_out)


async def _embed_records(records: Sequence[Record], embedder: Embedder, refuse: Refuse) -> Embedded:
    try:
        return await embedder.embed([record.values[0] for record in records])
    except DeviceLost:
        raise
    except (RequestError, EngineError):
        return await _embed_singly(records, embedder, refuse)


async def _embed_singly(records: Sequence[Record], embedder: Embedder, refuse: Refuse) -> Embedded:
    """Embed texts one by one, to find those that cannot be."""
    found = [Embedded(np.empty((0, embedder.dim), embedder.dtype), 0)]
    left_out = []
    for place, record in enumerate(records):
        try:
            found.append(await embedder.embed([record.values[0]]))
        except DeviceLost:
            raise
        except (RequestError, EngineError) as error:
            refuse(record, error)
            left_out.append(place)
    rows = np.concatenate([one.rows for one in found])
    return Embedded(rows, sum(one.tokens for one in found), left_out)


def _refuse(unit: str, skips_invalid: bool, record: Record, error: VecmillError) -> None:
    """Name a text that cannot be embedded. Raises `InvalidCorpus` if it is not to be left out."""
    problem = f"The text of {unit} {record.place} cannot be embedded: {error.message}"
    # An engine or a server that fails may do so for any text, and all would be left out.
    if not isinstance(error, RequestError | NonFiniteOutput):
        raise InvalidCorpus(problem) from error
    if not skips_invalid:
        raise InvalidCorpus(
            f"{problem} The same command with --skip-invalid leaves such texts out, and goes on."
        ) from error
    logger.warning("%s It is left out.", problem)


async def _gather(coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """All results in order; the first failure ends the others."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await _cancel(tasks)


async def _cancel(tasks: Sequence[asyncio.Task[Any]] | set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
