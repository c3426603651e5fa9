"""An answer stays in memory only while the caller holds it."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

from support.dispatching import Stage, stage


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Find what reference counts alone release: large arrays must not wait for the next collection."""
    gc.disable()
    yield
    gc.enable()


async def answer_to(it: Stage, text: int) -> "weakref.ref[np.ndarray]":
    embedding = (await it.submit(text)).embeddings[0]
    assert isinstance(embedding, np.ndarray)
    return weakref.ref(embedding)


@pytest.mark.usefixtures("no_collection")
async def test_an_answer_that_nobody_holds_leaves_memory_long_before_its_deadline() -> None:
    async with stage() as it:
        answers = [await answer_to(it, text) for text in range(5)]
        async with asyncio.timeout(10):
            while any(answer() is not None for answer in answers):
                await asyncio.sleep(0)
