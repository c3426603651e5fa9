"""Several parts at once, each kept as soon as it is whole.

Parts under way overlap, so that what is left of one never runs alone: there is always enough waiting for the
batcher to find neighbours in length. It takes the oldest first, so parts end about in the order they began.
Files are read and written in threads.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from vecmill.corpus.embedder import Embedded, Embedder
from vecmill.corpus.parts import Parts
from vecmill.corpus.records import Part, Record
from vecmill.errors import DeviceLost, EngineError, InvalidCorpus, RequestError

PARTS_AT_ONCE = 16

T = TypeVar("T")


class Progress(Protocol):
    """Is told how it goes."""

    def found(self, texts: int) -> None:
        """So many more texts were embedded by an earlier run."""
        ...

    def embedded(self, texts: int, tokens: int) -> None:
        """So many more texts were embedded, which had so many tokens."""
        ...


async def embed_parts(
    cut: Iterator[Part], embedder: Embedder, parts: Parts, progress: Progress, *, unit: str = "row"
) -> None:
    """Embed all parts that are not there. `unit` is what the places of records count.

    Raises `InvalidCorpus` for a text that cannot be embedded, and what `Embedder.embed` raises.
    """
    running: set[asyncio.Task[None]] = set()
    try:
        while (part := await asyncio.to_thread(next, cut, None)) is not None:
            if await asyncio.to_thread(parts.holds, part.number, len(part)):
                progress.found(len(part))
                continue
            running.add(asyncio.create_task(_embed_part(part, embedder, parts, progress, unit)))
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


async def _embed_part(part: Part, embedder: Embedder, parts: Parts, progress: Progress, unit: str) -> None:
    size = embedder.call_texts

    async def call(records: Sequence[Record]) -> Embedded:
        found = await _embed_records(records, embedder, unit)
        progress.embedded(len(records), found.tokens)
        return found

    found = await _gather([call(part.records[at : at + size]) for at in range(0, len(part), size)])
    rows = np.concatenate([one.rows for one in found])
    await asyncio.to_thread(parts.write, part.number, rows)


async def _embed_records(records: Sequence[Record], embedder: Embedder, unit: str) -> Embedded:
    try:
        return await embedder.embed([record.values[0] for record in records])
    except DeviceLost:
        raise
    except (RequestError, EngineError):
        return await _embed_singly(records, embedder, unit)


async def _embed_singly(records: Sequence[Record], embedder: Embedder, unit: str) -> Embedded:
    """Embed texts one by one, to name the one that cannot be."""
    found = []
    for record in records:
        try:
            found.append(await embedder.embed([record.values[0]]))
        except DeviceLost:
            raise
        except (RequestError, EngineError) as error:
            raise InvalidCorpus(
                f"The text of {unit} {record.place} cannot be embedded: {error.message}"
            ) from error
    return Embedded(np.concatenate([one.rows for one in found]), sum(one.tokens for one in found))


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
