"""Lines end in order, whatever passes is tried again, and what is too late is said to be."""

import asyncio
import itertools
import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from batches.batch_bench import HOUR_S, NOW, OPTIONS, MoodyMill, bench, requests
from support.batches import request_line
from support.failing_library import LibraryPanic
from vecmill import Mill
from vecmill.errors import DeviceLost, LaneLost, NotReady, QueueFull, SetupError, ShuttingDown, VecmillError
from vecmill.requests import Caller, Priority, Request
from vecmill_server.base.settings import ServerSettings
from vecmill_server.batches.batch_service import BatchService
from vecmill_server.batches.execution import LONGEST_PAUSE_S, RETRY_S, run_batch, validate_batch
from vecmill_server.batches.in_flight_limit import FEWEST_TEXTS, InFlightLimit
from vecmill_server.batches.jsonl import InputLine, read_line_request
from vecmill_server.batches.objects import BatchObject, BatchStatus
from vecmill_server.batches.scheduler import BATCHES_AT_ONCE, LOOK_S, BatchScheduler
from vecmill_server.batches.store import Store
from vecmill_server.catalog.catalog import Catalog, ServedModel

PATIENCE_S = 20.0


async def test_lines_are_asked_as_bulk_and_end_in_order(tmp_path: Path) -> None:
    async with bench(tmp_path) as place:
        batch = await place.run(requests(400))
        assert (batch.status, batch.completed, batch.lines_done) == ("completed", 400, 400)
        assert [caller.priority for caller in place.mill.asked] == [Priority.BACKGROUND] * 400
        found = [line["custom_id"] for line in place.lines(batch.output_file_id)]
        assert found == [str(number) for number in range(400)]


@pytest.mark.parametrize("line", ["", request_line("bad", {})])
def test_a_line_that_asks_nothing_of_the_model_takes_room_too(line: str) -> None:
    request = read_line_request(InputLine(1, line.encode(), 100, is_cut=False), "/v1/embeddings", OPTIONS)
    limit = InFlightLimit()
    while limit.has_room:  # else the memory of the server would be all that bounds how many are held
        limit.enter(request.texts, request.line.size)
    assert limit.bytes == 100 * FEWEST_TEXTS


async def test_blank_lines_are_passed_over(tmp_path: Path) -> None:
    async with bench(tmp_path) as place:
        lines = requests(2)
        batch = await place.run(["", "", lines[0], *[" "] * 1_000, lines[1], "", ""])
        assert (batch.total, batch.completed, batch.lines_done) == (2, 2, 1_005)


async def test_lines_that_were_found_valid_stay_so_when_the_limit_is_lowered(tmp_path: Path) -> None:
    async with bench(tmp_path) as place:
        batch_id = await place.add([request_line("long", {"input": "a" * 3_000}), *requests(1)])
        await validate_batch(place.context, batch_id)
        settings = replace(place.context.settings, max_body_bytes=1_024)
        await run_batch(replace(place.context, settings=settings), batch_id)
        assert (await place.record(batch_id)).completed == 2


PASSING: list[tuple[VecmillError, float]] = [
    (QueueFull("full", retry_after_s=0.25), 0.25),
    (QueueFull("full", retry_after_s=1e9), LONGEST_PAUSE_S),
    (NotReady("loading"), RETRY_S),
    (ShuttingDown("ending"), RETRY_S),
    (LaneLost("lost"), RETRY_S),
    (DeviceLost("lost"), RETRY_S),
]


@pytest.mark.parametrize(("error", "pause_s"), PASSING, ids=lambda value: type(value).__name__)
async def test_what_passes_is_tried_again_after_a_pause(
    tmp_path: Path, error: VecmillError, pause_s: float
) -> None:
    async with bench(tmp_path) as place:
        place.mill.errors = [error, error]
        batch = await place.run(requests(1))
        assert (batch.completed, batch.failed) == (1, 0)
        assert place.pauses == [pause_s, pause_s]


async def test_what_nobody_foresaw_costs_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with bench(tmp_path) as place:
        place.mill.errors = [ZeroDivisionError("secret")]
        batch = await place.run(requests(3))
        assert (batch.status, batch.completed, batch.failed) == ("completed", 2, 1)
        (line,) = place.lines(batch.error_file_id)
        assert (line["custom_id"], line["response"]["status_code"]) == ("0", 500)
        assert "secret" not in json.dumps(line)
        assert f"line 1 of {batch.id}" in caplog.text


async def test_what_has_not_been_run_in_time_is_said_to_be_too_late(tmp_path: Path) -> None:
    async with bench(tmp_path) as place:
        batch_id = await place.add(requests(600))
        await validate_batch(place.context, batch_id)

        class Late(MoodyMill):
            async def answer(self, request: Request[Any], caller: Caller) -> Any:
                place.now[0] += HOUR_S / 100
                return await super().answer(request, caller)

        catalog = Catalog([ServedModel("fake", cast("Mill", Late(place.mill.real)))])
        await run_batch(replace(place.context, catalog=catalog), batch_id)
        batch = await place.record(batch_id)
        assert (batch.status, batch.total) == ("expired", 600)
        assert batch.expired_at is not None
        assert 0 < batch.completed < 600 == batch.completed + batch.failed
        answers, errors = place.lines(batch.output_file_id), place.lines(batch.error_file_id)
        assert [line["custom_id"] for line in answers + errors] == [str(number) for number in range(600)]
        assert {line["error"]["code"] for line in errors} == {"batch_expired"}


async def test_nothing_is_run_once_the_time_is_over(tmp_path: Path) -> None:
    async with bench(tmp_path) as place:
        batch_id = await place.add(requests(3))
        await validate_batch(place.context, batch_id)
        place.now[0] += HOUR_S  # the server was not running meanwhile
        await run_batch(place.context, batch_id)
        batch = await place.record(batch_id)
        assert (batch.status, batch.failed, place.mill.asked) == ("expired", 3, [])


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_batch_that_waits_for_a_place_can_be_cancelled_and_expires(
    tmp_path: Path, is_late: bool
) -> None:
    async with bench(tmp_path) as place:

        class Hanging(MoodyMill):
            async def answer(self, request: Request[Any], caller: Caller) -> Any:
                await asyncio.Event().wait()
                return await super().answer(request, caller)

        catalog = Catalog([ServedModel("fake", cast("Mill", Hanging(place.mill.real)))])
        scheduler = BatchScheduler(replace(place.context, catalog=catalog))
        waiting = [await place.add(requests(3)) for _ in range(BATCHES_AT_ONCE + 1)][-1]
        scheduler.start()
        async with asyncio.timeout(PATIENCE_S):
            while (await place.record(waiting)).status is BatchStatus.VALIDATING:
                pass
            if is_late:
                place.now[0] += HOUR_S
            else:
                await place.context.store_thread.call(lambda store: store.cancel("", waiting, NOW))
            scheduler.wake()
            while (await place.record(waiting)).is_open:
                pass
        await scheduler.stop()
        batch = await place.record(waiting)
        assert (batch.status, batch.failed) == ("expired" if is_late else "cancelled", 3)


@pytest.mark.parametrize("line", [requests(1)[0], "{"])
async def test_a_batch_that_is_cancelled_before_it_begins_is_counted_once(tmp_path: Path, line: str) -> None:
    async with bench(tmp_path) as place:
        batches, batch_id = BatchService(place.context), await place.add([line])
        for _ in range(2):
            assert (await batches.cancel("", batch_id)).status is BatchStatus.CANCELLED
        await validate_batch(place.context, batch_id)  # it was being read meanwhile
        count = place.context.metrics.registry.get_sample_value
        assert count("vecmill_batch_api_batches_total", {"status": "cancelled"}) == 1
        assert count("vecmill_batch_api_batches_total", {"status": "failed"}) is None


async def test_work_that_is_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    async with bench(tmp_path) as place:
        batch_id = await place.add(requests(300))
        await validate_batch(place.context, batch_id)

        class Stopping(MoodyMill):
            async def answer(self, request: Request[Any], caller: Caller) -> Any:
                place.now[0] += 0.01
                if (await place.record(batch_id)).completed:
                    task.cancel()
                return await super().answer(request, caller)

        catalog = Catalog([ServedModel("fake", cast("Mill", Stopping(place.mill.real)))])
        task = asyncio.ensure_future(run_batch(replace(place.context, catalog=catalog), batch_id))
        with pytest.raises(asyncio.CancelledError):
            await task
        stopped = await place.record(batch_id)
        assert (stopped.status, 0 < stopped.completed < 300) == ("in_progress", True)
        await run_batch(place.context, batch_id)
        batch = await place.record(batch_id)
        assert (batch.status, batch.completed) == ("completed", 300)
        found = [line["custom_id"] for line in place.lines(batch.output_file_id)]
        assert found == [str(number) for number in range(300)]


async def test_scheduler_go_on_after_an_error_that_nobody_foresaw(tmp_path: Path) -> None:
    async with bench(tmp_path) as place:
        batch_id = await place.add(requests(2))
        settings, count = place.context.settings, iter(range(10**6))

        class Broken:
            """Settings that cannot be read the first time, as on a disk that is full for a while."""

            def __getattr__(self, name: str) -> Any:
                if next(count) == 0:
                    raise OSError("no space left")
                return getattr(settings, name)

        scheduler = BatchScheduler(replace(place.context, settings=cast("ServerSettings", Broken())))
        scheduler.start()
        while (await place.record(batch_id)).status is not BatchStatus.COMPLETED:
            pass
        await scheduler.stop()
        assert 30.0 in place.pauses


@pytest.mark.parametrize("error", [LibraryPanic("private"), RuntimeError("private")], ids=str)
async def test_a_line_for_which_a_library_raises_fails_alone(tmp_path: Path, error: BaseException) -> None:
    async with bench(tmp_path) as place:
        place.mill.errors = [error]
        batch = await place.run(requests(3))
        assert (batch.status, batch.completed, batch.failed) == ("completed", 2, 1)
        (failed,) = place.lines(batch.error_file_id)
        assert failed["response"]["status_code"] == 500
        assert "private" not in json.dumps(failed)


async def test_a_batch_that_panics_outside_its_lines_is_tried_again_after_a_rest(tmp_path: Path) -> None:
    async with bench(tmp_path) as place:
        batch_id, settings, count = await place.add(requests(3)), place.context.settings, itertools.count()

        class Panicking:
            """Settings at which a library panics the first time."""

            def __getattr__(self, name: str) -> Any:
                if next(count) == 0:
                    raise LibraryPanic
                return getattr(settings, name)

        scheduler = BatchScheduler(replace(place.context, settings=cast("ServerSettings", Panicking())))
        scheduler.start()
        async with asyncio.timeout(PATIENCE_S):
            while (await place.record(batch_id)).status is not BatchStatus.COMPLETED:
                pass
        await scheduler.stop()
        assert 30.0 in place.pauses


async def test_scheduler_rest_when_they_cannot_even_say_that_a_batch_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail = Store.fail

    def fail_later(store: Store, *values: Any) -> BatchObject:
        if 30.0 in place.pauses:
            return fail(store, *values)
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Store, "fail", fail_later)
    async with bench(tmp_path) as place:
        batch_id = await place.add(["{"])
        place.context.store_thread.store.folder.remove((await place.record(batch_id)).input_file_id)
        scheduler = BatchScheduler(place.context)
        scheduler.start()
        async with asyncio.timeout(PATIENCE_S):
            while (await place.record(batch_id)).is_open:
                pass
        await scheduler.stop()
        assert 30.0 in place.pauses


@pytest.mark.parametrize("is_begun", [False, True])
async def test_a_batch_whose_input_somebody_took_away_fails(tmp_path: Path, is_begun: bool) -> None:
    async with bench(tmp_path) as place:
        batch_id = await place.add(requests(2))
        if is_begun:
            await validate_batch(place.context, batch_id)
        place.context.store_thread.store.folder.remove((await place.record(batch_id)).input_file_id)
        scheduler = BatchScheduler(place.context)
        scheduler.start()
        while (await place.record(batch_id)).is_open:
            pass
        await scheduler.stop()
        batch = await place.record(batch_id)
        assert (batch.status, [error.code for error in batch.errors]) == ("failed", ["file_gone"])


async def test_batches_of_a_model_that_cannot_answer_leave_their_places_to_others(tmp_path: Path) -> None:
    def lines(model: str, count: int) -> list[str]:
        return [request_line(f"{model} {n}", {"input": f"{n}", "model": model}) for n in range(count)]

    async with bench(tmp_path) as place:
        broken = ServedModel("broken", cast("Mill", place.mill), SetupError("It is broken."))
        catalog = Catalog([ServedModel("fake", cast("Mill", place.mill)), broken])
        scheduler = BatchScheduler(replace(place.context, catalog=catalog))
        waiting = [await place.add(lines("fake", 3) + lines("broken", 3)) for _ in range(BATCHES_AT_ONCE)]
        batch_id = await place.add(lines("fake", 3))
        scheduler.start()
        async with asyncio.timeout(PATIENCE_S):
            while (await place.record(batch_id)).is_open:
                pass
        found = [await place.record(each) for each in waiting]
        assert {(batch.status, batch.completed, batch.failed) for batch in found} == {("in_progress", 3, 0)}
        cancelled = await place.context.store_thread.call(lambda store: store.cancel("", waiting[0], NOW))
        scheduler.wake()
        broken.failure = None  # as after a restart
        place.now[0] += LOOK_S
        scheduler.wake()
        async with asyncio.timeout(PATIENCE_S):
            while any([(await place.record(each)).is_open for each in waiting]):
                pass
        await scheduler.stop()
        found = [await place.record(each) for each in waiting]
        assert cancelled.status is BatchStatus.CANCELLING
        assert [batch.status for batch in found] == ["cancelled"] + ["completed"] * (BATCHES_AT_ONCE - 1)
        for batch in found[1:]:
            ids = [line["custom_id"] for line in place.lines(batch.output_file_id)]
            assert ids == [f"{model} {n}" for model in ("fake", "broken") for n in range(3)]
