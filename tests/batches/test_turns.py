"""Owners take turns: large files and many batches of one do not keep the batch of another waiting."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from batches.batch_bench import HOUR_S, NOW, Bench, MoodyMill, bench, requests
from support.batches import request_line
from vecmill.requests import Caller, Request
from vecmill_server.batches import execution
from vecmill_server.batches.batch_service import BatchService
from vecmill_server.batches.execution import validate_batch
from vecmill_server.batches.jsonl import InputLine, SliceTurns, read_lines
from vecmill_server.batches.objects import BatchStatus
from vecmill_server.batches.scheduler import BATCHES_AT_ONCE, BatchScheduler
from vecmill_server.catalog.catalog import Catalog, ServedModel

PATIENCE_S = 20.0
LARGE = 20_000


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The input files of the slices that are read, one entry a slice."""
    read: list[Path] = []

    def watched(path: Path, *values: Any) -> list[InputLine]:
        read.append(path)
        return read_lines(path, *values)

    monkeypatch.setattr(execution, "read_lines", watched)
    return read


async def wait_for(place: Bench, condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await place.context.store_thread.call(lambda _: None)


async def end_of(place: Bench, batch_id: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (await place.record(batch_id)).is_open:
            pass


async def test_one_slice_of_each_owner_is_done_in_turn() -> None:
    turns, done, may_go = SliceTurns(), list[str](), threading.Event()

    def work(owner: str) -> None:
        may_go.wait(PATIENCE_S)
        done.append(owner)

    async with asyncio.TaskGroup() as group:
        for owner in ("search",) * 30 + ("ingest",) * 2 + ("",):
            group.create_task(turns.run(owner, lambda owner=owner: work(owner)))  # type: ignore[misc]
        for _ in range(100):
            await asyncio.sleep(0)
        may_go.set()
    assert done[:6] == ["search", "ingest", "", "search", "ingest", "search"]
    assert len(done) == 33


async def test_a_slice_whose_caller_is_gone_leaves_its_turn() -> None:
    turns, began, may_go = SliceTurns(), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        may_go.wait(PATIENCE_S)

    tasks = [asyncio.create_task(turns.run("search", work)) for _ in range(2)]
    await asyncio.to_thread(began.wait, PATIENCE_S)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert await turns.run("search", lambda: "next") == "next"
    may_go.set()


@pytest.mark.promise("owners-apart", "no-starvation")
async def test_a_large_file_is_checked_between_the_small_ones_of_others(
    tmp_path: Path, slices: list[Path]
) -> None:
    async with bench(tmp_path) as place:
        large = [await place.add(requests(LARGE), owner="search") for _ in range(3)]
        scheduler = BatchScheduler(place.context)
        scheduler.start()
        await wait_for(place, lambda: len(slices) >= 3)
        small = await place.add(requests(1), owner="ingest")
        before = len(slices)
        scheduler.wake()
        while (await place.record(small)).status is BatchStatus.VALIDATING:
            pass
        first = slices[0]  # of the large files, which are checked one after the other
        between = next(count for count, path in enumerate(slices[before:]) if path != first)
        assert all([(await place.record(each)).status is BatchStatus.VALIDATING for each in large])
        await end_of(place, small)
        await scheduler.stop()
        assert (await place.record(small)).completed == 1
        assert between <= 10  # of 3 * LARGE / SLICE_LINES


@pytest.mark.promise("owners-apart", "no-starvation")
async def test_the_running_batches_of_one_owner_leave_a_place_to_another(tmp_path: Path) -> None:
    async with bench(tmp_path) as place:

        class HangingForOne(MoodyMill):
            async def answer(self, request: Request[Any], caller: Caller) -> Any:
                if len(request.sizes) == 1:
                    await asyncio.Event().wait()
                return await super().answer(request, caller)

        catalog = Catalog([ServedModel("fake", cast("Any", HangingForOne(place.mill.real)))])
        scheduler = BatchScheduler(replace(place.context, catalog=catalog))
        hanging = [await place.add(requests(3), owner="search") for _ in range(3 * BATCHES_AT_ONCE)]
        scheduler.start()
        async with asyncio.timeout(PATIENCE_S):
            while any([(await place.record(each)).status is BatchStatus.VALIDATING for each in hanging]):
                pass
        small = await place.add([request_line("a", {"input": ["two", "texts"]})], owner="ingest")
        scheduler.wake()
        await end_of(place, small)
        await scheduler.stop()
        assert (await place.record(small)).completed == 1


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_a_validation_ends_within_a_second_of_its_cancellation(
    tmp_path: Path, slices: list[Path], is_cancelled: bool
) -> None:
    async with bench(tmp_path) as place:
        batch_id = await place.add(requests(LARGE))
        slice_s, needed = 0.05, LARGE // 512 + 2
        task = asyncio.create_task(validate_batch(place.context, batch_id))
        await wait_for(place, lambda: bool(slices))
        if is_cancelled:
            await BatchService(place.context).cancel("", batch_id)
        before, count = len(slices), 0
        while not task.done():
            await place.context.store_thread.call(lambda _: None)
            count, passed = len(slices), len(slices) - count
            place.now[0] += passed * slice_s  # so long each slice takes on a slow machine
        await task
        batch = await place.record(batch_id)
        if is_cancelled:
            assert (batch.status, batch.total) == ("cancelled", 0)
            assert (len(slices) - before) * slice_s <= 1.0
        else:
            assert (batch.status, batch.total) == ("in_progress", LARGE)
            assert needed <= len(slices) < 2 * needed


@pytest.mark.promise("batches-survive")
async def test_a_validation_that_is_stopped_starts_over(tmp_path: Path, slices: list[Path]) -> None:
    async with bench(tmp_path) as place:
        batch_id = await place.add(requests(LARGE))
        scheduler = BatchScheduler(place.context)
        scheduler.start()
        await wait_for(place, lambda: len(slices) >= 3)
        await scheduler.stop()
        stopped = len(slices)
        await asyncio.sleep(0)
        assert (await place.record(batch_id)).status is BatchStatus.VALIDATING
        assert len(slices) <= stopped + 1  # the one that had begun
        await validate_batch(place.context, batch_id)
        batch = await place.record(batch_id)
        assert (batch.status, batch.total, batch.errors) == ("in_progress", LARGE, ())


async def test_a_batch_of_blank_lines_between_requests_is_run_in_few_slices(
    tmp_path: Path, slices: list[Path]
) -> None:
    blank = "\n" * 400_000
    async with bench(tmp_path) as place:
        batch = await place.run([blank.join(requests(2))])
        assert (batch.status, batch.completed, batch.lines_done) == ("completed", 2, 400_001)
        assert len(slices) < 40


async def test_what_was_not_run_of_a_batch_is_written_in_few_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path) as place:
        lines = [request_line(str(number), {"input": "a" * 4_000}) for number in range(1_000)]
        batch_id = await place.add(lines)
        await validate_batch(place.context, batch_id)
        commits = 0
        store = place.context.store_thread.store
        advance = store.advance

        def counted(*values: Any) -> Any:
            nonlocal commits
            commits += 1
            return advance(*values)

        monkeypatch.setattr(store, "advance", counted)
        place.now[0] = NOW + HOUR_S
        await execution.run_batch(place.context, batch_id)
        batch = await place.record(batch_id)
        assert (batch.status, batch.failed) == ("expired", 1_000)
        assert 1 < commits <= 3  # 62 slices
