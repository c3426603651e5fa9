"""The ranges by which int8 is quantised belong to the model: no request, and no failure, changes them."""

import asyncio
import threading
from dataclasses import replace

import numpy as np
import pytest

from support.described_models import token_ids
from vecmill import Embed, InputConfig, Mill, MillConfig, OutputDtype
from vecmill.directory_layouts import describe_model
from vecmill.engines.fake import FakeEngine, hash_row
from vecmill.errors import EngineError, InferenceFailed
from vecmill.models import ModelDescription, locate_model
from vecmill.operations.output_ranges import SAMPLE_TEXTS
from vecmill.values.aliases import FloatArray
from vecmill.values.sample_texts import sample_texts
from vecmill.vectors.transforms import find_ranges, truncate_embeddings

DIM = 384
TEXT = "a text that is not in the sample"


@pytest.fixture(scope="module")
def description() -> ModelDescription:
    return describe_model(locate_model())


async def find(mill: Mill, dimensions: int | None = None, *, normalize: bool | None = None) -> FloatArray:
    """The ranges that a request for int8 gets."""
    result = await mill.run(Embed((TEXT,), dimensions, normalize, (OutputDtype.INT8,)))
    assert result.ranges is not None
    return result.ranges


def sample_rows() -> FloatArray:
    """What a fake engine gives for the sample."""
    texts = [text for text in sample_texts(SAMPLE_TEXTS) if text]
    return np.stack([hash_row(token_ids(text), DIM) for text in texts])


async def test_they_are_those_of_the_sample(description: ModelDescription) -> None:
    rows = sample_rows()
    async with Mill(description, MillConfig(engine="fake")) as mill:
        whole = await find(mill)
        np.testing.assert_array_equal(whole, find_ranges(rows))
        assert whole.shape == (2, DIM)
        cut = truncate_embeddings(rows, 16, normalize=True)
        np.testing.assert_array_equal(await find(mill, 16), find_ranges(cut))
        plain = truncate_embeddings(rows, 16, normalize=False)
        np.testing.assert_array_equal(await find(mill, 16, normalize=False), find_ranges(plain))
        np.testing.assert_array_equal(await find(mill), whole)


async def test_they_are_normalised_where_a_request_asks_for_it(description: ModelDescription) -> None:
    loose = replace(description, stages=description.stages[:1])
    assert not loose.normalize
    async with Mill(loose, engine=Doubled(dim=DIM)) as mill:
        raw, unit = await find(mill), await find(mill, normalize=True)
        np.testing.assert_allclose(raw, 2 * unit, rtol=1e-5)


async def test_the_sample_is_embedded_once(description: ModelDescription) -> None:
    engine = FakeEngine(dim=DIM)
    async with Mill(description, engine=engine) as mill:
        await asyncio.gather(*(find(mill, dimensions) for dimensions in (None, 8, 16, None)))
        await find(mill)
        embedded = sum(texts for texts, _ in engine.calls) - len(sample_rows())
        assert 1 <= embedded <= 5  # the text of each request, which they may share


async def test_whoever_comes_first_may_leave(description: ModelDescription) -> None:
    engine = PausedInSample(dim=DIM)
    async with Mill(description, engine=engine) as mill:
        first, second = (asyncio.ensure_future(find(mill)) for _ in range(2))
        await asyncio.to_thread(engine.has_begun.wait)
        first.cancel()
        await asyncio.wait([first])
        engine.released.set()
        np.testing.assert_array_equal(await second, find_ranges(sample_rows()))
        assert first.cancelled()


async def test_after_a_failure_the_next_request_tries_again(description: ModelDescription) -> None:
    engine = FailingFirst(dim=DIM)
    async with Mill(description, engine=engine) as mill:
        with pytest.raises(EngineError):
            await find(mill)
        engine.is_mended = True
        np.testing.assert_array_equal(await find(mill), find_ranges(sample_rows()))


async def test_they_are_found_within_whatever_limits_requests_have(description: ModelDescription) -> None:
    small = InputConfig(
        max_inputs=5, max_text_characters=2_000, max_request_characters=4_000, max_request_tokens=600
    )
    async with Mill(description, MillConfig(engine="fake", inputs=small)) as mill:
        ranges = await find(mill)
        assert (ranges[0] < ranges[1]).all()


class Doubled(FakeEngine):
    """Gives rows of length 2."""

    def run(self, batch, *, width):  # type: ignore[no-untyped-def]
        rows = super().run(batch, width=width)
        return replace(rows, values=rows.values * np.float32(2))


class PausedInSample(FakeEngine):
    """Waits in calls of several texts, as those of the sample are, until `released`."""

    has_begun = threading.Event()

    def run(self, batch, *, width):  # type: ignore[no-untyped-def]
        if len(batch) > 1:
            self.has_begun.set()
            self.released.wait()
        return super().run(batch, width=width)


class FailingFirst(FakeEngine):
    """Fails from its second call on, those of the sample, until it is mended."""

    is_mended = False

    def run(self, batch, *, width):  # type: ignore[no-untyped-def]
        if self.calls and not self.is_mended:
            raise InferenceFailed("not mended yet")
        return super().run(batch, width=width)
