"""On-demand loading: leases, loads that are shared, room by least recent use, expiry, failures."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from catalog.residency_stage import KEEP_S, Stage, settle
from support.failing_library import LibraryPanic
from vecmill.errors import CorruptModel, QueueFull, ShuttingDown
from vecmill_server.base.errors import ModelUnavailable, NoRoom
from vecmill_server.catalog import residency as module
from vecmill_server.catalog.load_failures import FIRST_RELOAD_S, LONGEST_RELOAD_S
from vecmill_server.catalog.residency import PATIENCE_S
from vecmill_server.catalog.residents import ResidentPlace


@asynccontextmanager
async def a_stage(**settings: float | bool) -> AsyncIterator[Stage]:
    stage = Stage(**settings)  # type: ignore[arg-type]
    yield stage
    await stage.residency.close()


def loaded(stage: Stage) -> set[str]:
    assert all(each.is_in_memory == (each.resident.place is ResidentPlace.LOADED) for each in stage.contents)
    return {each.name for each in stage.contents if each.is_in_memory}


async def test_the_first_request_loads_a_model_and_the_next_one_does_not() -> None:
    async with a_stage() as stage:
        a = stage.add("a")
        assert not stage.residency.lease(a)
        await stage.use(a)
        await stage.use(a)
        assert stage.residency.lease(a)
        assert stage.contents[0].loads == 1


async def test_requests_share_a_load() -> None:
    async with a_stage(waits=True) as stage:
        a = stage.add("a")
        asked = [stage.ask(a) for _ in range(10)]
        await settle()
        gate = stage.contents[0].gate
        assert gate is not None
        gate.set_result(None)
        await asyncio.gather(*asked)
        assert (stage.contents[0].loads, a.leases) == (1, 10)


async def test_the_one_that_was_used_longest_ago_makes_room() -> None:
    async with a_stage() as stage:  # 800 MB for models of 300 MB
        a, b, c = (stage.add(name) for name in "abc")
        for resident in (a, b, a, c):
            await stage.pass_time(1)
            await stage.use(resident)
        assert loaded(stage) == {"a", "c"}


async def test_nothing_is_dropped_if_that_does_not_make_enough_room() -> None:
    async with a_stage() as stage:
        small, used, large = stage.add("small", 100), stage.add("used", 400), stage.add("large", 700)
        await stage.use(small)
        await stage.residency.acquire(used, 30)
        waiting = stage.ask(large)
        await settle()
        assert loaded(stage) == {"small", "used"}
        stage.residency.release(used)
        await waiting
        assert loaded(stage) == {"large"}


async def test_a_model_in_use_is_not_dropped_and_the_request_ends_with_a_time_to_retry() -> None:
    async with a_stage(budget_mb=600) as stage:
        a, b = stage.add("a"), stage.add("b")
        await stage.residency.acquire(a, 30)
        waiting = stage.ask(b, timeout_s=3)
        await stage.pass_time(3)
        with pytest.raises(NoRoom) as refusal:
            await waiting
        assert refusal.value.retry_after_s > 0
        await settle()
        assert (loaded(stage), stage.residency.waiting_count, b.is_wanted) == ({"a"}, 0, False)


async def test_a_load_that_has_waited_gets_its_turn_before_new_requests_for_the_models_in_use() -> None:
    async with a_stage(budget_mb=600) as stage:
        a, b = stage.add("a"), stage.add("b")
        await stage.residency.acquire(a, 30)
        waiting = stage.ask(b)
        await settle()
        assert stage.residency.lease(a)  # there is no end of requests for `a`
        await stage.pass_time(PATIENCE_S)
        assert not stage.residency.lease(a)
        late = stage.ask(a)
        for _ in range(2):
            stage.residency.release(a)
        await waiting
        assert loaded(stage) == {"b"}
        stage.residency.release(b)
        await late
        assert loaded(stage) == {"a"}


async def test_a_model_that_did_not_have_to_leave_goes_on_with_those_who_wait_for_it() -> None:
    async with a_stage(budget_mb=600) as stage:
        a, b = stage.add("a"), stage.add("b")
        await stage.residency.acquire(a, 30)
        waiting = stage.ask(b, timeout_s=PATIENCE_S + 1)
        await settle()
        await stage.pass_time(PATIENCE_S)
        late = stage.ask(a)
        await stage.pass_time(1)
        with pytest.raises(NoRoom):
            await waiting
        await late
        assert (a.leases, stage.contents[0].loads) == (2, 1)


async def test_an_idle_model_is_gone_after_its_time_by_one_timer() -> None:
    async with a_stage() as stage:
        a, b = stage.add("a"), stage.add("b")
        await stage.use(a)
        await stage.pass_time(10)
        await stage.use(b)
        await stage.use(a)  # which does not move the timer
        assert len(stage.timers) == 1
        await stage.pass_time(KEEP_S - 10)
        assert loaded(stage) == {"a", "b"}
        await stage.pass_time(10)
        assert loaded(stage) == set()
        assert not stage.timers


async def test_a_model_in_use_outlives_its_time() -> None:
    async with a_stage() as stage:
        a = stage.add("a")
        await stage.residency.acquire(a, 30)
        await stage.pass_time(10 * KEEP_S)
        assert loaded(stage) == {"a"}
        stage.residency.release(a)
        await stage.pass_time(KEEP_S)
        assert loaded(stage) == set()


@pytest.mark.parametrize(("keep_s", "is_kept"), [(0.0, False), (math.inf, True)])
async def test_the_ends_of_the_time(keep_s: float, is_kept: bool) -> None:
    async with a_stage(keep_s=keep_s) as stage:
        await stage.use(stage.add("a"))
        await stage.pass_time(1e9 if is_kept else 0)
        assert (loaded(stage) == {"a"}) is is_kept
        assert not stage.timers


async def test_a_request_neither_shortens_the_time_of_others_nor_passes_the_operators() -> None:
    async with a_stage() as stage:
        a = stage.add("a")
        await stage.use(a)
        await stage.use(a, keep_s=0)
        await stage.pass_time(KEEP_S - 1)
        assert loaded(stage) == {"a"}
        await stage.use(a, keep_s=math.inf)
        await stage.pass_time(KEEP_S)
        assert loaded(stage) == set()


async def test_the_operator_keeps_and_drops_a_model() -> None:
    async with a_stage() as stage:
        a = stage.add("a")
        await stage.use(a)
        stage.residency.keep(a, math.inf)
        await stage.pass_time(1e6)
        assert loaded(stage) == {"a"}
        assert stage.residency.lease(a)
        stage.residency.keep(a, 0)
        await settle()
        assert loaded(stage) == {"a"}
        stage.residency.release(a, keep_s=0)
        await settle()
        assert loaded(stage) == set()


@pytest.mark.parametrize(
    "error",
    [CorruptModel("The weights are damaged."), LibraryPanic()],
    ids=lambda error: type(error).__name__,
)
async def test_a_load_that_fails_is_an_error_of_those_who_wait_for_it_and_is_tried_again_later(
    error: BaseException,
) -> None:
    async with a_stage() as stage:
        a, b = stage.add("a"), stage.add("b")
        stage.contents[0].error = error
        asked = [stage.ask(a) for _ in range(3)]
        await stage.use(b)
        errors = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(error) for error in errors} == {ModelUnavailable}
        with pytest.raises(ModelUnavailable) as refusal:
            await stage.use(a)
        assert refusal.value.retry_after_s == FIRST_RELOAD_S
        assert stage.contents[0].loads == 1
        await stage.pass_time(FIRST_RELOAD_S)
        with pytest.raises(ModelUnavailable) as refusal:
            await stage.use(a)
        assert (refusal.value.retry_after_s, stage.contents[0].loads) == (2 * FIRST_RELOAD_S, 2)
        stage.contents[0].error = None
        await stage.pass_time(2 * FIRST_RELOAD_S)
        await stage.use(a)
        assert loaded(stage) == {"a", "b"}


async def test_a_model_that_never_loads_is_tried_at_most_every_five_minutes() -> None:
    async with a_stage() as stage:
        a = stage.add("a")
        stage.contents[0].error = CorruptModel("The weights are damaged.")
        waits: list[float | None] = []
        for _ in range(12):
            await stage.pass_time(LONGEST_RELOAD_S)
            with pytest.raises(ModelUnavailable) as refusal:
                await stage.use(a)
            waits.append(refusal.value.retry_after_s)
        assert waits[-1] == LONGEST_RELOAD_S


async def test_a_load_that_nobody_waits_for_any_more_is_not_begun() -> None:
    async with a_stage(budget_mb=600) as stage:
        a, b = stage.add("a"), stage.add("b")
        await stage.residency.acquire(a, 30)
        waiting = stage.ask(b)
        await settle()
        waiting.cancel()
        await settle()
        stage.residency.release(a)
        await settle()
        assert (stage.contents[1].loads, stage.residency.waiting_count, loaded(stage)) == (0, 0, {"a"})


async def test_a_request_that_is_cancelled_as_its_model_is_loaded_leaves_no_lease() -> None:
    async with a_stage(waits=True) as stage:
        a = stage.add("a")
        waiting = stage.ask(a)
        await settle()
        gate = stage.contents[0].gate
        assert gate is not None
        gate.set_result(None)
        for _ in range(20):
            if not a.leases:
                await asyncio.sleep(0)
        waiting.cancel()
        await settle()
        assert (a.leases, loaded(stage)) == (0, {"a"})


async def test_what_was_measured_counts_after_a_load() -> None:
    async with a_stage() as stage:
        a, b, c = stage.add("a", 300, real_mb=500), stage.add("b", 250), stage.add("c", 100)
        await stage.use(a)
        assert a.held_mb == 500
        await stage.use(b)
        await stage.use(c)
        assert loaded(stage) == {"b", "c"}


async def test_a_model_that_was_larger_than_estimated_makes_others_leave() -> None:
    async with a_stage() as stage:
        a, b = stage.add("a", 300), stage.add("b", 300, real_mb=700)
        await stage.use(a)
        await stage.use(b)
        assert loaded(stage) == {"b"}


async def test_a_model_that_was_once_measured_larger_than_the_room_is_loaded_alone() -> None:
    async with a_stage() as stage:
        a, b = stage.add("a", 300, real_mb=900), stage.add("b")
        for resident in (a, b, a):
            await stage.use(resident)
            assert len(loaded(stage)) == 1


async def test_a_bounded_number_of_requests_waits_half_of_them_of_one_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 4)
    async with a_stage(waits=True) as stage:
        a = stage.add("a")
        tasks = [stage.ask(a, client="x"), stage.ask(a, client="x")]
        await settle()
        with pytest.raises(QueueFull):
            await stage.ask(a, client="x")
        tasks += [stage.ask(a, client="y"), stage.ask(a, client="z")]
        await settle()
        with pytest.raises(QueueFull) as refusal:
            await stage.ask(a, client="other")
        assert refusal.value.retry_after_s > 0
        await stage.residency.close()
        errors = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(error) for error in errors} == {ShuttingDown}
