"""The ranges by which int8 is quantised belong to the model: no request, and no failure, changes them."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.described_models import token_ids
from vecmill import Embed, InputConfig, Mill, MillConfig, OutputDtype
from vecmill.config import QueueConfig
from vecmill.directory_layouts import describe_model
from vecmill.engines.fake import FakeEngine, Fault, FaultScript, hash_row
from vecmill.errors import DeadlineExceeded, EngineError, InferenceFailed, ShuttingDown
from vecmill.models import ModelDescription, locate_model
from vecmill.operations import output_ranges
from vecmill.operations.output_ranges import FOLDER, SAMPLE_REQUEST_TEXTS
from vecmill.requests import Priority
from vecmill.values.aliases import FloatArray
from vecmill.values.sample_texts import sample_texts
from vecmill.values.task import Task
from vecmill.vectors import find_ranges, truncate_embeddings

DIM = 384
TEXT = "a text that is not in the sample"
WHOLE_SAMPLE = output_ranges.SAMPLE_TEXTS


@pytest.fixture(autouse=True)
def _small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three requests are enough for whatever happens between them, and nobody waits before the first."""
    monkeypatch.setattr(output_ranges, "QUIET_S", 0.0)
    monkeypatch.setattr(output_ranges, "SAMPLE_TEXTS", 3 * SAMPLE_REQUEST_TEXTS)


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
    texts = [text for text in sample_texts(output_ranges.SAMPLE_TEXTS) if text]
    return np.stack([hash_row(token_ids(text), DIM) for text in texts])


async def test_they_are_those_of_the_sample(
    description: ModelDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_ranges, "SAMPLE_TEXTS", WHOLE_SAMPLE)
    rows = sample_rows()
    async with Mill(description, engine=FakeEngine(dim=DIM)) as mill:
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
    async with Mill(description, MillConfig(inputs=small), engine=FakeEngine(dim=DIM)) as mill:
        ranges = await find(mill)
        assert (ranges[0] < ranges[1]).all()


async def test_the_configured_time_limit_holds_for_the_measurement_too(description: ModelDescription) -> None:
    engine = PausedInSample(dim=DIM)
    config = MillConfig(queue=QueueConfig(timeout_s=0.2))
    async with Mill(description, config, engine=engine) as mill, asyncio.timeout(10):
        with pytest.raises(DeadlineExceeded):
            await find(mill)
        engine.released.set()
        await mill.measure_ranges()
        np.testing.assert_array_equal(await find(mill), find_ranges(sample_rows()))


async def test_background_requests_wait_for_it_however_long(description: ModelDescription) -> None:
    engine = PausedInSample(dim=DIM)
    config = MillConfig(queue=QueueConfig(timeout_s=0.1))
    async with Mill(description, config, engine=engine) as mill:
        asked = Embed((TEXT,), dtypes=(OutputDtype.INT8,), priority=Priority.BACKGROUND)
        waiting = asyncio.ensure_future(mill.run(asked))
        assert not (await asyncio.wait([waiting], timeout=0.25))[0]
        engine.released.set()
        assert (await waiting).ranges is not None


async def test_they_can_be_measured_before_anybody_asks(description: ModelDescription) -> None:
    engine = FakeEngine(dim=DIM)
    async with Mill(description, engine=engine) as mill:
        await mill.measure_ranges()
        embedded = sum(texts for texts, _ in engine.calls)
        np.testing.assert_array_equal(await find(mill), find_ranges(sample_rows()))
        assert sum(texts for texts, _ in engine.calls) == embedded + 1
        # The texts of the sample are not counted among those of clients.
        assert (mill.text_counts.admitted, mill.text_counts.done, mill.text_counts.open) == (1, 1, 0)


async def test_nobody_waits_for_a_measurement_that_nobody_needs(
    description: ModelDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_ranges, "QUIET_PAUSE_S", 0.1)
    engine = FakeEngine(dim=DIM, faults=FaultScript(calls={0: Fault.HANG}), lane_widths=(1,))
    async with Mill(description, MillConfig(cores=2), engine=engine) as mill:
        client = asyncio.ensure_future(mill.embed(TEXT))
        await asyncio.to_thread(engine.wait_for_calls, 1)
        measuring = asyncio.ensure_future(mill.measure_ranges())
        assert not (await asyncio.wait([measuring], timeout=2 * output_ranges.QUIET_PAUSE_S))[0]
        assert len(engine.calls) == 1  # although a lane is free
        engine.released.set()
        await client
        await measuring
        assert len(engine.calls) > 1


async def test_nothing_is_measured_before_ten_seconds_without_requests(
    description: ModelDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_ranges, "QUIET_S", 10.0)
    monkeypatch.setattr(output_ranges, "QUIET_PAUSE_S", 0.01)
    now, engine = 100.0, FakeEngine(dim=DIM)
    async with Mill(description, engine=engine, clock=lambda: now) as mill:
        measuring = asyncio.ensure_future(mill.measure_ranges())
        now += 9.9
        await mill.embed(TEXT)  # a client that comes now and then is not delayed
        for _ in range(2):
            assert not (await asyncio.wait([measuring], timeout=0.1))[0]
            assert len(engine.calls) == 1
            now += 4.9
        now += 5.1
        await measuring
        assert len(engine.calls) > 1


async def test_a_measurement_that_is_stopped_goes_on_where_it_was(description: ModelDescription) -> None:
    engine = PausedInSample(dim=DIM)
    async with Mill(description, engine=engine) as mill:
        measuring = asyncio.ensure_future(mill.measure_ranges())
        await asyncio.to_thread(engine.has_begun.wait)
        measuring.cancel()
        engine.released.set()
        assert not (await asyncio.wait([measuring]))[1]
        assert sum(texts for texts, _ in engine.calls) <= SAMPLE_REQUEST_TEXTS
        np.testing.assert_array_equal(await find(mill), find_ranges(sample_rows()))
        # Only the part that was cut off is embedded twice.
        assert sum(texts for texts, _ in engine.calls) <= len(sample_rows()) + SAMPLE_REQUEST_TEXTS + 1


async def test_closing_ends_a_request_that_waits(description: ModelDescription) -> None:
    engine = PausedInSample(dim=DIM)
    async with Mill(description, engine=engine) as mill:
        measuring = asyncio.ensure_future(mill.measure_ranges())
        waiting = asyncio.ensure_future(find(mill))
        await asyncio.to_thread(engine.has_begun.wait)
        measuring.cancel()  # and the request that waits goes on
        assert not (await asyncio.wait([waiting], timeout=0.2))[0]
        engine.released.set()
    with suppress(ShuttingDown):
        await waiting


async def test_a_model_for_another_task_measures_nothing(description: ModelDescription) -> None:
    engine = FakeEngine(dim=DIM)
    async with Mill(replace(description, task=Task.SPARSE), engine=engine) as mill:
        engine.calls.clear()
        await mill.measure_ranges()
        assert engine.calls == []


class Counting:
    """Counts the texts that fake engines compute."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.texts = 0
        run = FakeEngine.run

        def count(engine: FakeEngine, batch: Any, *, width: int) -> Any:
            self.texts += len(batch)
            return run(engine, batch, width=width)

        monkeypatch.setattr(FakeEngine, "run", count)


async def measured(description: ModelDescription, cache_dir: Path) -> FloatArray:
    """The ranges that a mill finds which is started with this cache."""
    async with Mill(description, MillConfig(engine="fake", cache_dir=cache_dir)) as mill:
        await mill.measure_ranges()
        return await find(mill)


async def test_the_next_start_finds_them_in_the_cache(
    description: ModelDescription, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = Counting(monkeypatch)
    first = await measured(description, tmp_path)
    of_first = computed.texts
    assert of_first > len(sample_rows())
    np.testing.assert_array_equal(await measured(description, tmp_path), first)
    assert computed.texts - of_first < 10  # the checks of a start and the text of the request
    other = replace(description, prompts={"p": "query: "}, default_prompt_name="p")
    assert (await measured(other, tmp_path) != first).any()
    assert len(list((tmp_path / FOLDER).iterdir())) == 2


@pytest.mark.parametrize(
    "change", [lambda _: b"", lambda data: data[:-1] + b"x", lambda data: b"\xff" * len(data)]
)
async def test_a_damaged_file_is_measured_again(
    description: ModelDescription, tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    first = await measured(description, tmp_path)
    (file,) = (tmp_path / FOLDER).iterdir()
    whole = file.read_bytes()
    file.write_bytes(change(whole))
    np.testing.assert_array_equal(await measured(description, tmp_path), first)
    assert file.read_bytes() == whole


async def test_a_cache_that_cannot_be_written_costs_nothing_else(
    description: ModelDescription, tmp_path: Path
) -> None:
    (tmp_path / FOLDER).write_text("a file where the folder should be")
    np.testing.assert_array_equal(await measured(description, tmp_path), find_ranges(sample_rows()))


class Doubled(FakeEngine):
    """Gives rows of length 2."""

    def run(self, batch, *, width):  # type: ignore[no-untyped-def]
        rows = super().run(batch, width=width)
        return replace(rows, values=rows.values * np.float32(2))


class PausedInSample(FakeEngine):
    """Waits in calls of several texts, as those of the sample are, until `released`."""

    def __init__(self, *, dim: int) -> None:
        super().__init__(dim=dim)
        self.has_begun = threading.Event()

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
