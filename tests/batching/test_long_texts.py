"""A long text uses the whole machine, and a short text that comes meanwhile finds a core."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from support.dispatching import Stage
from support.dispatching import stage as any_stage
from vecmill.batching.dispatcher import Dispatcher
from vecmill.batching.lane_watch import HANG_FACTOR
from vecmill.config import MillConfig, QueueConfig
from vecmill.engines.fake import FakeEngine
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import Embeddings
from vecmill.values.engine_plan import CostModel
from vecmill.values.observer import LaneState, Observer

CONFIG = MillConfig(hang_s=10.0, queue=QueueConfig(timeout_s=1e6))
PER_TOKEN_S = 1e-3
LONG, SHORT = 8_192, 10  # tokens: about 40 s and 10 ms on one core


class HeldEngine(FakeEngine):
    """A call with a long text returns when it is let go; other calls return at once."""

    def __init__(self, cores: int) -> None:
        super().__init__(lane_widths=(1, cores))
        self.widths: defaultdict[int, list[int]] = defaultdict(list)  # by the longest text of the call
        self.gate = threading.Event()

    def run(self, batch: Batch, *, width: int) -> Embeddings:
        longest = int(batch.lengths.max())
        self.widths[longest].append(width)
        embeddings = super().run(batch, width=width)
        if longest == LONG:
            self.gate.wait()
        return embeddings

    def close(self) -> None:
        super().close()
        self.gate.set()


@asynccontextmanager
async def stage(cores: int) -> AsyncIterator[tuple[Stage, HeldEngine]]:
    engine = HeldEngine(cores)
    async with any_stage(cores=cores, config=CONFIG, engine=engine, per_token_s=PER_TOKEN_S) as it:
        yield it, engine


@pytest.mark.promise("no-starvation")
@pytest.mark.parametrize("cores", [2, 4, 16])
async def test_a_lone_long_text_runs_on_all_cores_and_leaves_one_for_short_texts(cores: int) -> None:
    async with stage(cores) as (it, engine):
        long = it.submit_soon(1, length=LONG)
        await it.until_called(1)
        assert engine.widths[LONG] == [cores]
        assert it.budget.free == 1
        for text in range(2, 7):
            await it.submit(text, length=SHORT)  # while the long one runs
        assert not long.done()
        assert engine.widths[SHORT] == [1] * 5
        engine.gate.set()
        await long


@pytest.mark.promise("no-starvation")
@pytest.mark.parametrize(("cores", "long_texts", "widths"), [(2, 3, [2]), (4, 2, [4]), (16, 40, [1] * 15)])
async def test_many_long_texts_leave_a_core_for_short_texts(
    cores: int, long_texts: int, widths: list[int]
) -> None:
    async with stage(cores) as (it, engine):
        long = it.submit_soon(*range(long_texts), length=LONG)
        await it.until_called(len(widths))
        await it.submit(1_000, length=SHORT)
        assert engine.widths[LONG] == widths  # and no more
        assert it.budget.free == 1
        engine.gate.set()
        await long
        assert len(engine.widths[LONG]) == long_texts


async def test_a_long_text_begins_although_a_short_one_runs() -> None:
    async with stage(2) as (it, engine):
        first = it.submit_soon(1, length=LONG)
        await it.until_called(1)
        second = it.submit_soon(2, length=LONG)
        await it.submit(3, length=SHORT)
        engine.gate.set()
        await asyncio.gather(first, second)
        assert engine.widths[LONG] == [2, 2]


@pytest.mark.promise("no-starvation")
async def test_a_long_text_of_one_model_leaves_a_core_for_another_model() -> None:
    async with stage(2) as (it, engine):
        other_engine = HeldEngine(2)
        other = Dispatcher(
            other_engine,
            CONFIG,
            budget=it.budget,
            observer=Observer(),
            cost=CostModel(0.0, PER_TOKEN_S),
            clock=it.time,
        )
        other.start()
        long = it.submit_soon(1, length=LONG)
        await it.until_called(1)
        waiting = asyncio.ensure_future(other.submit([TokenSequence.of([2] * LONG)]))
        await asyncio.sleep(0)
        await other.submit([TokenSequence.of([3] * SHORT)])
        assert (other_engine.widths[LONG], other_engine.widths[SHORT]) == ([], [1])
        engine.gate.set()
        await asyncio.to_thread(other_engine.wait_for_calls, 2)
        assert other_engine.widths[LONG] == [2]
        other_engine.gate.set()
        await asyncio.gather(long, waiting)
        await other.close()


async def test_calls_that_share_cores_do_not_correct_the_predictions() -> None:
    async with stage(2) as (it, engine):
        await it.submit(1, length=SHORT)
        pace = it.dispatcher.scheduler.pace
        before = (pace.slowness, pace.call_s([LONG], 2), pace.call_s([SHORT], 1))
        long = it.submit_soon(2, length=LONG)
        await it.until_called(2)
        short = it.submit_soon(3, length=SHORT)
        await short
        it.pass_time(5.0)
        engine.gate.set()
        await long
        assert (pace.slowness, pace.call_s([LONG], 2), pace.call_s([SHORT], 1)) == before


async def test_a_long_call_that_shares_no_core_corrects_the_predictions() -> None:
    async with stage(2) as (it, engine):
        predicted_s = it.dispatcher.scheduler.pace.call_s([LONG], 2)
        long = it.submit_soon(2, length=LONG)
        await it.until_called(1)
        it.pass_time(0.5 * predicted_s)
        engine.gate.set()
        await long
        assert it.dispatcher.scheduler.pace.call_s([LONG], 2) < 0.97 * predicted_s


async def test_a_call_that_shares_cores_has_more_time_before_it_hangs() -> None:
    async with stage(2) as (it, engine):
        limit_s = HANG_FACTOR * it.dispatcher.scheduler.pace.call_s([LONG], 2)
        alone = it.submit_soon(1, length=LONG)
        await it.until_called(1)
        await it.submit(2, length=SHORT)
        it.pass_time(1.5 * limit_s)
        assert it.states.count(LaneState.HUNG) == 0
        it.pass_time(3.0 * limit_s)
        assert it.states.count(LaneState.HUNG) == 1
        engine.gate.set()
        await asyncio.gather(alone, return_exceptions=True)
