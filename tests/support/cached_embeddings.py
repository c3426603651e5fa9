"""Results to keep, their keys, and what is on a disk."""

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from vecmill.values.embedding_cache import CachedEmbedding
from vecmill_server.service.embedding_cache.disk_tier import DiskTier, Drop

DIM = 48
SIZE = 8 * 1024 * 1024


def key_of(number: int) -> bytes:
    """The key of a result."""
    return hashlib.blake2b(b"%d" % number, digest_size=32).digest()


def result_of(number: int, dim: int = DIM) -> CachedEmbedding:
    """A result, which is the same at every call. Every third one is of a model that normalises."""
    values = np.random.default_rng(number).standard_normal((1, dim), np.float32)
    length = 0.5 + number if number % 3 == 0 else None
    return CachedEmbedding(values, length, 7 + number, number % 2, is_exact=number % 4 != 1)


def results_of(numbers: range) -> Mapping[bytes, CachedEmbedding]:
    """Results by key."""
    return {key_of(number): result_of(number) for number in numbers}


def _counts(one: CachedEmbedding) -> tuple[object, ...]:
    return one.length, one.token_count, one.cut_tokens, one.is_exact


def is_equal(one: CachedEmbedding, other: CachedEmbedding) -> bool:
    """Whether two results are the same in every part."""
    counts = _counts(one) == _counts(other)
    return (
        counts and one.values.dtype == other.values.dtype and bool(np.array_equal(one.values, other.values))
    )


async def store(folder: Path, numbers: range, size: int = SIZE) -> list[Drop]:
    """Write results as a server does that ends afterwards. Returns the faults."""
    drops: list[Drop] = []
    stored = DiskTier(folder, size, drops.append)
    stored.write(results_of(numbers))
    await stored.close()
    return drops


async def count_kept(folder: Path, numbers: range, size: int = SIZE) -> tuple[int, list[Drop]]:
    """Read results as a new server does, check each, and return how many are there, and the faults."""
    drops: list[Drop] = []
    stored = DiskTier(folder, size, drops.append)
    try:
        found = await stored.read([key_of(number) for number in numbers])
    finally:
        await stored.close()
    for number, result in zip(numbers, found, strict=True):
        assert result is None or is_equal(result, result_of(number)), number
    return sum(result is not None for result in found), drops


async def wait_for(condition: Callable[[], bool], patience_s: float = 20.0) -> None:
    """Return as soon as `condition()` is true; fail if it never is."""
    async with asyncio.timeout(patience_s):
        while not condition():  # noqa: ASYNC110 -- threads do the work
            await asyncio.sleep(0.002)


async def wait_until_idle(stored: DiskTier) -> None:
    """Return when everything is written."""
    await wait_for(lambda: stored.is_idle)


def file_in(folder: Path) -> Path:
    """The only file of results."""
    (found,) = folder.glob("results-*.sqlite3")
    return found
