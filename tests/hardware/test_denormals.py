"""Denormal numbers are 0 in threads that compute, and in no other thread."""

import platform
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from support.dispatching import stage
from vecmill.directory_layouts import describe_model
from vecmill.engines import load_engine
from vecmill.engines.fake import FakeEngine
from vecmill.hardware.denormals import flush_denormals, kept_float_environment
from vecmill.models import locate_model
from vecmill.values.batch import Batch
from vecmill.values.embeddings import Embeddings
from vecmill.values.engine_plan import EnginePlan

pytestmark = [
    pytest.mark.linux,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors need no such setting"),
]

DENORMAL = np.full(64, 1e-39, np.float32)


def keeps_denormals() -> bool:
    return bool((DENORMAL * np.float32(1)).any())


def in_thread(work: Callable[[], bool]) -> bool:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def test_a_thread_that_asks_for_it_computes_with_0() -> None:
    def work() -> bool:
        flush_denormals()
        return keeps_denormals()

    assert not in_thread(work)
    assert keeps_denormals()


def test_a_block_keeps_how_the_thread_computes() -> None:
    def work() -> bool:
        with kept_float_environment():
            flush_denormals()
        return keeps_denormals()

    assert in_thread(work)


def test_loading_an_engine_changes_nothing_for_the_thread_that_loads(tmp_path: Path) -> None:
    def work() -> bool:
        load_engine(describe_model(locate_model()), EnginePlan("onnx"), cores=1, cache_dir=tmp_path).close()
        return keeps_denormals()

    assert in_thread(work)


async def test_a_lane_computes_with_0_and_the_thread_that_asks_does_not() -> None:
    found: list[bool] = []

    class Observed(FakeEngine):
        def run(self, batch: Batch, *, width: int) -> Embeddings:
            found.append(keeps_denormals())
            return super().run(batch, width=width)

    async with stage(engine=Observed()) as it:
        await it.submit(1)
    assert found == [False]
    assert keeps_denormals()
