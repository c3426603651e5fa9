"""An answer stays in memory only while the caller holds it."""

import asyncio
import gc
import threading
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


async def release_of_answer(it: Stage, text: int) -> threading.Event:
    """Return an event that is set when the embedding of a text leaves memory. Nobody keeps the answer."""
    is_released = threading.Event()
    embedding = (await it.submit(text)).embeddings[0]
    assert isinstance(embedding, np.ndarray)
    weakref.finalize(embedding, is_released.set)
    return is_released


@pytest.mark.usefixtures("no_collection")
async def test_an_answer_that_nobody_holds_leaves_memory_long_before_its_deadline() -> None:
    async with stage() as it:
        for text in range(5):
            is_released = await release_of_answer(it, text)
            assert await asyncio.to_thread(is_released.wait, 10.0)
