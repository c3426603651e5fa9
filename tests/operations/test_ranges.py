"""The ranges that 8 bits are steps of belong to the model: no request, and no failure, changes them."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from support.described_models import token_ids
from vecmill import InputConfig, Mill, MillConfig
from vecmill.engines.fake import FakeEngine, Fault, FaultScript, hash_row
from vecmill.errors import EngineError, InferenceFailed
from vecmill.fidelity.sample import sample_texts
from vecmill.models import ModelDescription, describe_model, locate_model
from vecmill.operations.ranges import SAMPLE_TEXTS
from vecmill.rows import cut_rows, find_ranges
from vecmill.types import FloatArray

DIM = 384


@pytest.fixture(scope="module")
def description() -> ModelDescription:
    return describe_model(locate_model())


def sample_rows() -> FloatArray:
    """What a fake engine gives for the sample."""
    texts = [text for text in sample_texts(SAMPLE_TEXTS) if text]
    return np.stack([hash_row(token_ids(text), DIM) for text in texts])


async def test_they_are_those_of_the_sample(description: ModelDescription) -> None:
    rows = sample_rows()
    async with Mill(description, MillConfig(engine="fake")) as mill:
        whole = await mill.ranges()
        np.testing.assert_array_equal(whole, find_ranges(rows))
        assert whole.shape == (2, DIM)
        cut = cut_rows(rows, 16, normalize=True)
        np.testing.assert_array_equal(await mill.ranges(16), find_ranges(cut))
        plain = cut_rows(rows, 16, normalize=False)
        np.testing.assert_array_equal(await mill.ranges(16, normalize=False), find_ranges(plain))
        np.testing.assert_array_equal(await mill.ranges(), whole)


async def test_they_are_normalised_where_a_request_asks_for_it(description: ModelDescription) -> None:
    loose = replace(description, stages=description.stages[:1])
    assert not loose.normalize
    async with Mill(loose, engine=Doubled(dim=DIM)) as mill:
        raw, unit = await mill.ranges(), await mill.ranges(normalize=True)
        np.testing.assert_allclose(raw, 2 * unit, rtol=1e-5)


async def test_the_sample_is_embedded_once(description: ModelDescription) -> None:
    engine = FakeEngine(dim=DIM)
    async with Mill(description, engine=engine) as mill:
        await asyncio.gather(*(mill.ranges(dimensions) for dimensions in (None, 8, 16, None)))
        await mill.ranges()
        assert sum(texts for texts, _ in engine.calls) == len(sample_rows())


async def test_whoever_comes_first_may_leave(description: ModelDescription) -> None:
    engine = FakeEngine(dim=DIM, faults=FaultScript(calls={0: Fault.HANG}))
    async with Mill(description, engine=engine) as mill:
        first, second = (asyncio.ensure_future(mill.ranges()) for _ in range(2))
        await asyncio.to_thread(engine.wait_for_calls, 1)
        first.cancel()
        await asyncio.wait([first])
        engine.released.set()
        np.testing.assert_array_equal(await second, find_ranges(sample_rows()))
        assert first.cancelled()


async def test_after_a_failure_the_next_request_tries_again(description: ModelDescription) -> None:
    engine = FailingFirst(dim=DIM)
    async with Mill(description, engine=engine) as mill:
        with pytest.raises(EngineError):
            await mill.ranges()
        engine.is_mended = True
        np.testing.assert_array_equal(await mill.ranges(), find_ranges(sample_rows()))


async def test_they_are_found_within_whatever_limits_requests_have(description: ModelDescription) -> None:
    small = InputConfig(
        max_inputs=5, max_text_characters=2_000, max_request_characters=4_000, max_request_tokens=600
    )
    async with Mill(description, MillConfig(engine="fake", inputs=small)) as mill:
        ranges = await mill.ranges()
        assert (ranges[0] < ranges[1]).all()


class Doubled(FakeEngine):
    """Gives rows of length 2."""

    def run(self, batch, *, width):  # type: ignore[no-untyped-def]
        rows = super().run(batch, width=width)
        return replace(rows, values=rows.values * np.float32(2))


class FailingFirst(FakeEngine):
    """Fails until it is mended."""

    is_mended = False

    def run(self, batch, *, width):  # type: ignore[no-untyped-def]
        if not self.is_mended:
            raise InferenceFailed("not mended yet")
        return super().run(batch, width=width)
