"""A request that carries a timeline, and an observer that needs timelines, learn every time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from support.http_server import fake_engine
from vecmill import Mill
from vecmill.directory_layouts import describe_model
from vecmill.engines.fake import FakeEngine, Fault, FaultScript
from vecmill.errors import InferenceFailed, InvalidRequest
from vecmill.hardware.budget import CoreBudget
from vecmill.models import locate_model
from vecmill.requests import Embed
from vecmill.values.observer import BatchRecord, BatchTimeline, Observer, RunTimeline, Timeline

MANY = 400  # texts, more than a batch holds


class Recorder(Observer):
    """Keeps the timelines of batches."""

    def __init__(self, *, needs_timelines: bool = True) -> None:
        self.needs_timelines = needs_timelines
        self.records: list[BatchRecord] = []

    def batch_done(self, record: BatchRecord) -> None:
        self.records.append(record)

    @property
    def batches(self) -> list[BatchTimeline]:
        return [record.timeline for record in self.records if record.timeline is not None]


@asynccontextmanager
async def mill(
    observer: Observer, faults: FaultScript | None = None, *, cores: int = 1
) -> AsyncIterator[tuple[Mill, FakeEngine]]:
    description = describe_model(locate_model())
    engine = fake_engine(description)
    if faults is not None:
        engine = FakeEngine(dim=description.dim, max_tokens=description.max_tokens, faults=faults)
    async with Mill(description, observer=observer, engine=engine, budget=CoreBudget(cores)) as running:
        yield running, engine


def embed(*texts: str) -> tuple[Embed, Timeline]:
    timeline = Timeline()
    return Embed(texts, timeline=timeline), timeline


def times_of(run: RunTimeline) -> list[float | None]:
    return [
        run.began_at,
        run.tokenized_at,
        run.admitted_at,
        run.started_at,
        run.finished_at,
        run.resumed_at,
    ]


async def test_the_times_of_a_request_follow_each_other() -> None:
    observer = Recorder()
    async with mill(observer) as (it, _):
        request, timeline = embed("one", "two", "one")
        result = await it.run(request)
    (run,) = timeline.runs
    times = [time for time in times_of(run) if time is not None]
    assert len(times) == 6
    assert times == sorted(times)
    assert (run.texts, run.tokens, run.joined_texts) == (3, result.token_count, 1)
    (batch,) = observer.batches
    assert run.batches == {batch: 3}
    assert batch.runs == [run]
    assert batch.of_texts == (run, run)
    assert (batch.texts, batch.taken_at, batch.ended_at) == (2, run.started_at, run.finished_at)
    (call,) = batch.calls
    assert batch.taken_at <= call.began_at <= call.ended_at <= (batch.ended_at or 0)
    assert call.texts == 2


async def test_a_request_of_many_texts_has_all_its_batches() -> None:
    observer = Recorder()
    async with mill(observer) as (it, _):
        request, timeline = embed(*(f"text number {number}" for number in range(MANY)))
        await it.run(request)
    (run,) = timeline.runs
    assert list(run.batches) == observer.batches
    assert len(run.batches) > 1
    assert sum(run.batches.values()) == MANY
    assert run.started_at == observer.batches[0].taken_at
    assert run.finished_at == observer.batches[-1].ended_at


async def test_equal_texts_of_two_requests_share_a_batch_that_knows_both() -> None:
    observer = Recorder()
    async with mill(observer, FaultScript(calls={0: Fault.HANG})) as (it, engine):
        first, of_first = embed("the same text")
        second, of_second = embed("the same text")
        running = asyncio.create_task(it.run(first))
        await asyncio.to_thread(engine.wait_for_calls, 1)
        joining = asyncio.create_task(it.run(second))
        await asyncio.sleep(0)
        engine.released.set()
        await asyncio.gather(running, joining)
    (batch,) = observer.batches
    runs = [of_first.runs[0], of_second.runs[0]]
    assert batch.runs == runs
    assert runs[1].joined_texts == 1
    assert runs[1].started_at == runs[1].admitted_at
    assert batch.taken_at < (runs[1].started_at or 0)


async def test_only_requests_with_a_timeline_are_in_the_timeline_of_a_batch() -> None:
    observer = Recorder()
    async with mill(observer, FaultScript(calls={0: Fault.HANG})) as (it, engine):
        waiting = asyncio.create_task(it.run(Embed(("first",))))
        await asyncio.to_thread(engine.wait_for_calls, 1)
        request, timeline = embed("second")
        later = [asyncio.create_task(it.run(one)) for one in (request, Embed(("third",)))]
        await asyncio.sleep(0)
        engine.released.set()
        await asyncio.gather(waiting, *later)
    alone, shared = observer.batches
    assert alone.runs == []
    assert shared.runs == timeline.runs
    assert set(shared.of_texts) == {None, timeline.runs[0]}


async def test_a_batch_that_is_split_has_every_call() -> None:
    observer = Recorder()
    async with mill(observer, FaultScript(calls={0: Fault.RAISE})) as (it, _):
        request, timeline = embed("one", "two")
        await it.run(request)
    (batch,) = observer.batches
    assert [call.texts for call in batch.calls] == [2, 1, 1]
    assert batch.failed_texts == 0
    assert not timeline.runs[0].has_failed


async def test_a_failed_request_ends_with_its_batch() -> None:
    observer = Recorder()
    async with mill(observer, FaultScript(calls={0: Fault.RAISE})) as (it, _):
        request, timeline = embed("one")
        with pytest.raises(InferenceFailed):
            await it.run(request)
    (run,) = timeline.runs
    assert run.has_failed
    assert run.resumed_at is None
    assert run.finished_at == observer.batches[0].ended_at
    assert observer.batches[0].failed_texts == 1


async def test_a_refused_request_has_no_times_after_the_refusal() -> None:
    async with mill(Recorder()) as (it, _):
        request, timeline = embed()
        with pytest.raises(InvalidRequest):
            await it.run(request)
    (run,) = timeline.runs
    assert times_of(run)[1:] == [None] * 5


async def test_a_cancelled_request_ends_when_it_is_cancelled() -> None:
    observer = Recorder()
    async with mill(observer, FaultScript(calls={0: Fault.HANG})) as (it, engine):
        request, timeline = embed("one")
        running = asyncio.create_task(it.run(request))
        await asyncio.to_thread(engine.wait_for_calls, 1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        (run,) = timeline.runs
        assert run.finished_at is not None
        assert run.resumed_at is None
        engine.released.set()
    assert run.batches == {observer.batches[0]: 1}


async def test_without_an_observer_that_needs_them_batches_have_no_timelines() -> None:
    observer = Recorder(needs_timelines=False)
    async with mill(observer) as (it, _):
        request, timeline = embed("one")
        await it.run(request)
    assert observer.records
    assert observer.batches == []
    assert timeline.runs[0].batches == {}
