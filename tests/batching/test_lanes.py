"""Lanes go on whatever a call raises, come back if one hangs, and every text is answered once."""

import asyncio
import itertools
import logging
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import numpy as np
import pytest

from support import dispatching
from support.dispatching import Stage, row_of
from vecmill.batching import lanes as lanes_module
from vecmill.batching import scheduler as scheduler_module
from vecmill.batching.lane_watch import HANG_FACTOR, MAX_STUCK, REPLACE_FACTOR
from vecmill.batching.policy import is_long
from vecmill.batching.ticket import Job
from vecmill.config import MillConfig, QueueConfig
from vecmill.engines.fake import FakeEngine, Fault, FaultScript
from vecmill.errors import DeviceLost, InferenceFailed, LaneLost, ShuttingDown
from vecmill.values.batch import Batch
from vecmill.values.embeddings import Embeddings
from vecmill.values.observer import LaneState

HANG_S = 10.0
NO_DEADLINES = MillConfig(hang_s=HANG_S, queue=QueueConfig(timeout_s=1e9))
LONG_TEXT = 8_192  # tokens
SLOW_S = 1e-3  # for each token: a long text takes about 40 s on one core

stage = partial(dispatching.stage, config=NO_DEADLINES)


class GatedEngine(FakeEngine):
    """Calls whose number `hangs` is true for return when their gate is opened."""

    def __init__(self, hangs: Callable[[int], bool], lane_widths: tuple[int, ...] = (1, 2)) -> None:
        super().__init__(lane_widths=lane_widths)
        self.gates: defaultdict[int, threading.Event] = defaultdict(threading.Event)
        self._hangs = hangs
        self._numbers = itertools.count()

    def run(self, batch: Batch, *, width: int) -> Embeddings:
        number = next(self._numbers)
        rows = super().run(batch, width=width)
        if self._hangs(number) and not self.closed:
            self.gates[number].wait()
        return rows

    def close(self) -> None:
        super().close()
        self._hangs = lambda _: False
        for gate in tuple(self.gates.values()):
            gate.set()


class LateFailingEngine(GatedEngine):
    """Every call fails when its gate is open."""

    def run(self, batch: Batch, *, width: int) -> Embeddings:
        super().run(batch, width=width)
        raise ValueError("scripted")


class RaisingEngine(FakeEngine):
    """Calls for whose number `errors` has an error raise it."""

    def __init__(self, errors: Callable[[int], BaseException | None], cores: int = 2) -> None:
        super().__init__(lane_widths=(1, cores) if cores > 1 else (1,))
        self._errors = errors
        self._numbers = itertools.count()

    def run(self, batch: Batch, *, width: int) -> Embeddings:
        rows = super().run(batch, width=width)
        if error := self._errors(next(self._numbers)):
            raise error
        return rows


@asynccontextmanager
async def gated(
    hangs: Callable[[int], bool],
    *,
    cores: int = 2,
    kind: type[GatedEngine] = GatedEngine,
    per_token_s: float = dispatching.PER_TOKEN_S,
) -> AsyncIterator[tuple[Stage, GatedEngine]]:
    """A stage whose calls hang where `hangs` is true for their number. Only two cores share calls."""
    engine = kind(hangs, lane_widths=(1, 2) if cores == 2 else (1,))
    async with stage(cores=cores, engine=engine, per_token_s=per_token_s) as it:
        yield it, engine


class Unforeseen(BaseException):
    """Not an `Exception`, as `SystemExit` is not."""


async def assert_whole(it: Stage, *, lanes: int = 2) -> None:
    """All lanes work, as is reported, and answer."""
    await it.until(lambda: list(it.ledger.lanes.values()) == [LaneState.IDLE] * lanes)
    assert it.states == [LaneState.IDLE] * lanes
    assert (it.dispatcher.is_degraded, it.dispatcher.is_lost) == (False, False)
    answers = await asyncio.gather(*(it.submit(text, length=300) for text in range(900, 910)))
    for text, answer in enumerate(answers, 900):
        np.testing.assert_array_equal(answer.embeddings[0], row_of(text, 300))


async def hang(it: Stage, text: int, call: int) -> None:
    """Submit a text that hangs in call number `call`, and let its lane be given up."""
    stuck = it.submit_soon(text)
    await it.until_called(call + 1)
    failed = it.ledger.texts["failed"]
    for _ in range(1_000):
        if it.ledger.texts["failed"] == failed:
            it.pass_time(1.0)
    with pytest.raises(LaneLost):
        await stuck


# Which calls hang.


@pytest.mark.promise("lost-lane-noticed")
async def test_a_hanging_lane_is_given_up_and_the_other_goes_on() -> None:
    async with stage(FaultScript(calls={0: Fault.HANG})) as it:
        stuck = it.submit_soon(1)
        await it.until_called(1)
        it.pass_time(HANG_S - 0.1)
        states = [it.dispatcher.is_degraded]
        it.pass_time(0.2)
        with pytest.raises(LaneLost):
            await stuck
        states.append(it.dispatcher.is_degraded)
        assert states == [False, True]
        assert LaneState.HUNG in it.ledger.lanes.values()
        await it.submit(2)
        assert it.states.count(LaneState.HUNG) == 1


async def test_the_limit_of_a_call_grows_with_its_predicted_time() -> None:
    async with gated(lambda number: number == 0, cores=1, per_token_s=SLOW_S) as (it, _):
        stuck = it.submit_soon(1, length=2_000)
        await it.until_called(1)
        predicted_s = it.dispatcher.scheduler.pace.call_s([2_000], 1)
        assert 1.0 < predicted_s < HANG_S < HANG_FACTOR * predicted_s
        it.pass_time(HANG_FACTOR * predicted_s - 0.1)
        states = [it.dispatcher.is_degraded]
        it.pass_time(0.2)
        with pytest.raises(LaneLost):
            await stuck
        assert states == [False]


async def test_long_texts_end_no_lane() -> None:
    async with gated(lambda _: True, per_token_s=SLOW_S) as (it, engine):
        tasks = [it.submit_soon(n, length=LONG_TEXT, client=str(n)) for n in range(2)]
        for call in range(2):
            await it.until_called(call + 1)
            it.pass_time(6 * HANG_S)
            assert not it.dispatcher.is_degraded
            engine.gates[call].set()
        for text, answer in enumerate(await asyncio.gather(*tasks)):
            np.testing.assert_array_equal(answer.embeddings[0], row_of(text, LONG_TEXT))
        assert not it.dispatcher.is_degraded


async def test_each_call_of_a_split_batch_has_its_own_limit() -> None:
    async with gated(lambda _: True, cores=1, kind=LateFailingEngine) as (it, engine):
        failing = it.submit_soon(1, 2, 3)
        for call in range(5):
            await it.until_called(call + 1)
            it.pass_time(HANG_S - 1)
            assert not it.dispatcher.is_degraded
            engine.gates[call].set()
        with pytest.raises(Exception, match="engine failed"):
            await failing


# Time in which the process stands still.


@pytest.mark.promise("lost-lane-noticed")
@pytest.mark.parametrize("stopped_s", [5.0, 35.0, 1e6])
async def test_time_in_which_the_process_stood_still_does_not_count(stopped_s: float) -> None:
    async with gated(lambda number: number < 2) as (it, engine):
        running = [it.submit_soon(text, length=300) for text in range(2)]
        await it.until_called(2)
        for _ in range(3):
            it.stand_still(stopped_s)
            assert set(it.states) == {LaneState.BUSY}
        for number in range(2):
            engine.gates[number].set()
        await asyncio.gather(*running)
        await assert_whole(it)


async def test_a_hang_is_found_though_the_timer_is_always_late() -> None:
    async with stage(FaultScript(calls={0: Fault.HANG})) as it:
        stuck = it.submit_soon(1)
        await it.until_called(1)
        for _ in range(int(HANG_S)):
            it.stand_still(60.0)
        with pytest.raises(LaneLost):
            await stuck


async def test_a_call_that_began_after_the_stop_has_its_whole_limit() -> None:
    async with gated(lambda _: True, cores=1) as (it, engine):
        tasks = [it.submit_soon(1)]
        await it.until_called(1)
        tasks.append(it.submit_soon(2))
        await asyncio.sleep(0)
        it.time.now += 35.0
        engine.gates[0].set()  # before the timer notices the stop
        await it.until_called(2)
        it.stand_still(0.0)
        it.pass_time(HANG_S - 0.5)
        assert not it.dispatcher.is_degraded
        it.pass_time(1.0)
        with pytest.raises(LaneLost):
            await tasks[1]


async def test_a_stop_does_not_make_predictions_longer() -> None:
    async with gated(lambda number: number == 0) as (it, engine):
        running = it.submit_soon(1, length=1_000)
        await it.until_called(1)
        before_s = it.dispatcher.scheduler.pace.call_s([1_000], 2)
        it.time.now += 3_600.0
        engine.gates[0].set()
        await running
        assert it.dispatcher.scheduler.pace.call_s([1_000], 2) < 2 * before_s


# Lanes that return.


@pytest.mark.parametrize("number", range(6))
async def test_a_lane_whose_call_returns_is_a_lane_again(number: int) -> None:
    async with gated(lambda call: call == number) as (it, engine):
        for text in range(number):
            await it.submit(text)
        await hang(it, 50, number)
        done = it.ledger.texts["done"]
        assert it.states.count(LaneState.HUNG) == 1
        engine.gates[number].set()
        await it.until(lambda: LaneState.HUNG not in it.ledger.lanes.values())
        assert it.ledger.texts["done"] == done
        assert engine.renewals == 0
        await assert_whole(it)


async def test_a_call_that_fails_after_its_lane_was_given_up_is_not_split() -> None:
    async with gated(lambda number: number == 0, cores=1, kind=LateFailingEngine) as (it, engine):
        stuck = it.submit_soon(7, 8, 9)
        await it.until_called(1)
        it.pass_time(HANG_S + 1)
        with pytest.raises(LaneLost):
            await stuck
        engine.gates[0].set()
        await it.until(lambda: not it.dispatcher.lanes.watch._stuck)
        assert [texts for texts, _ in engine.calls] == [3]


async def test_the_time_of_a_call_that_returned_late_corrects_the_predictions() -> None:
    async with gated(lambda number: number == 0, cores=1) as (it, engine):
        before_s = it.dispatcher.scheduler.pace.call_s([10], 1)
        await hang(it, 1, 0)
        engine.gates[0].set()
        await it.until(lambda: not it.dispatcher.lanes.watch._stuck)
        assert it.dispatcher.scheduler.pace.call_s([10], 1) > 10 * before_s


# Lanes that are replaced.


@pytest.mark.promise("lost-lane-noticed")
async def test_a_lane_that_does_not_return_is_replaced_with_new_sessions() -> None:
    async with gated(lambda number: number == 0) as (it, engine):
        await hang(it, 1, 0)
        (old,) = [lane for lane in it.dispatcher.lanes.all if lane.is_lost]
        it.pass_time((REPLACE_FACTOR - 1) * HANG_S - 1.5)
        assert engine.renewals == 0
        it.pass_time(1.0)
        await it.until(lambda: set(it.ledger.lanes.values()) == {LaneState.IDLE})
        assert engine.renewals == 1
        await assert_whole(it)
        engine.gates[0].set()
        assert old.thread is not None
        await asyncio.to_thread(old.thread.join)
        assert it.ledger.texts["failed"] == 1
        await assert_whole(it)


async def test_the_last_lane_is_replaced_at_once_and_waiting_texts_are_computed() -> None:
    async with gated(lambda number: number == 0, cores=1) as (it, _):
        stuck = it.submit_soon(1)
        await it.until_called(1)
        waiting = it.submit_soon(2)
        await asyncio.sleep(0)
        it.pass_time(HANG_S + 1)
        assert not it.dispatcher.is_lost
        np.testing.assert_array_equal((await waiting).embeddings[0], row_of(2))
        with pytest.raises(LaneLost):
            await stuck
        await assert_whole(it, lanes=1)


async def test_when_both_lanes_hang_both_come_back() -> None:
    async with gated(lambda number: number < 2) as (it, engine):
        stuck = [it.submit_soon(text, length=300) for text in range(2)]
        await it.until_called(2)
        it.pass_time(HANG_S + 1)
        for task in stuck:
            with pytest.raises(LaneLost):
                await task
        assert engine.renewals <= 1
        assert it.states.count(LaneState.HUNG) == 1  # the other was replaced at once
        await it.submit(5)
        for number in range(2):
            engine.gates[number].set()
        await assert_whole(it)
        assert it.ledger.texts["failed"] == 2


async def test_lanes_that_are_replaced_together_share_the_new_sessions() -> None:
    async with gated(lambda number: number < 3, cores=4) as (it, engine):
        stuck = [it.submit_soon(text, length=300) for text in range(3)]
        await it.until_called(3)
        it.pass_time(REPLACE_FACTOR * HANG_S + 1)
        await asyncio.gather(*stuck, return_exceptions=True)
        await it.until(lambda: set(it.ledger.lanes.values()) == {LaneState.IDLE})
        assert engine.renewals == 1
        await assert_whole(it, lanes=4)


async def test_an_engine_that_cannot_heal_is_lost() -> None:
    async with gated(lambda _: True, cores=1) as (it, engine):
        for call in range(MAX_STUCK):
            await hang(it, call, call)
            assert not it.dispatcher.is_lost
        waiting = [it.submit_soon(text) for text in range(50, 55)]
        await it.until_called(MAX_STUCK + 1)
        it.pass_time(HANG_S + 1)
        for task in waiting:
            with pytest.raises(LaneLost):
                await task
        with pytest.raises(LaneLost):
            await it.submit(9)
        with pytest.raises(LaneLost):
            it.dispatcher.refuse_if_full()
        assert it.dispatcher.is_lost
        assert it.ledger.lanes == {0: LaneState.HUNG}
        engine.close()
        await assert_whole(it, lanes=1)


async def test_a_lane_may_be_replaced_again_after_a_finished_batch() -> None:
    async with gated(lambda number: number % 2 == 0, cores=1) as (it, engine):
        for call in range(0, 4 * MAX_STUCK, 2):
            await hang(it, call, call)
            engine.gates[call].set()
            await it.submit(call + 1)
            await it.until(lambda: not it.dispatcher.lanes.watch._stuck)
        assert not it.dispatcher.is_degraded


async def test_threads_that_never_return_have_a_limit() -> None:
    async with gated(lambda number: number % 2 == 0, cores=1) as (it, engine):
        for call in range(0, 2 * MAX_STUCK, 2):
            await hang(it, call, call)
            await it.submit(call + 1)
        await hang(it, 100, 2 * MAX_STUCK)
        assert it.dispatcher.is_lost
        engine.gates[0].set()
        await it.until(lambda: len(it.dispatcher.lanes.watch._stuck) < MAX_STUCK)
        it.pass_time(1.0)
        await it.submit(101)


async def test_new_sessions_that_hang_lose_the_lane_until_they_are_made() -> None:
    may_renew = threading.Event()

    class Slow(GatedEngine):
        def renew(self) -> None:
            may_renew.wait()

    async with gated(lambda number: number == 0, kind=Slow) as (it, _):
        await hang(it, 1, 0)
        it.pass_time(HANG_S)
        assert not it.dispatcher.is_degraded
        it.pass_time(HANG_S + 1)
        assert it.states.count(LaneState.HUNG) == 1
        await it.submit(2)
        may_renew.set()
        await assert_whole(it)


# Calls that raise, and threads that end.


@pytest.mark.promise("lost-lane-noticed", "failure-contained")
@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), Unforeseen()], ids=repr
)
@pytest.mark.parametrize("number", range(4))
async def test_a_call_that_raises_anything_ends_no_thread(error: BaseException, number: int) -> None:
    engine = RaisingEngine(lambda call: error if call == number else None)
    async with stage(engine=engine) as it:
        threads = [lane.thread for lane in it.dispatcher.lanes.all]
        for text in range(number):
            await it.submit(text)
        with pytest.raises(InferenceFailed):
            await it.submit(50)
        assert [lane.thread for lane in it.dispatcher.lanes.all] == threads
        await assert_whole(it)
        assert engine.renewals == 0
        assert LaneState.DEAD not in it.ledger.lanes.values()


@pytest.mark.promise("failure-contained")
async def test_running_out_of_memory_in_a_call_ends_no_lane() -> None:
    async with stage(FaultScript(calls={0: Fault.MEMORY, 1: Fault.MEMORY})) as it:
        answer = await it.submit(1, 2, 3, 4)
        for text, row in zip((1, 2, 3, 4), answer.embeddings, strict=True):
            np.testing.assert_array_equal(row, row_of(text))
        assert not it.dispatcher.is_degraded
        assert LaneState.DEAD not in it.ledger.lanes.values()


@pytest.mark.parametrize("error", [MemoryError(), SystemExit(), Unforeseen()], ids=repr)
async def test_an_error_beside_a_call_fails_its_texts_and_ends_no_thread(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage() as it:
        threads = [lane.thread for lane in it.dispatcher.lanes.all]
        finish = it.dispatcher.scheduler.finish
        failures = iter([True])

        def fail_once(*arguments: object) -> object:
            if next(failures, False):
                raise error
            return finish(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(it.dispatcher.scheduler, "finish", fail_once)
        with pytest.raises(InferenceFailed):
            await it.submit(1)
        await assert_whole(it)
        assert [lane.thread for lane in it.dispatcher.lanes.all] == threads


async def test_when_no_batch_can_be_taken_what_waits_fails_and_no_thread_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with stage() as it:

        def fail(*_: object, **__: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(it.dispatcher.scheduler.policy, "choose", fail)
        for text in range(3):
            with pytest.raises(InferenceFailed):
                await it.submit(text)
        monkeypatch.undo()
        await assert_whole(it)


async def test_an_observer_that_raises_ends_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("nowhere to write it")

    async with stage() as it:
        monkeypatch.setattr(it.ledger, "batch_done", fail)
        monkeypatch.setattr(it.ledger, "lane", fail)
        for text in range(5):
            await it.submit(text)
        monkeypatch.undo()
        await it.submit(6)
        await assert_whole(it)


async def test_without_new_sessions_the_thread_goes_on_with_the_present_ones() -> None:
    class Unrenewable(GatedEngine):
        def renew(self) -> None:
            raise MemoryError

    async with gated(lambda number: number == 0, cores=1, kind=Unrenewable) as (it, _):
        await hang(it, 1, 0)
        await it.submit(2)
        await assert_whole(it, lanes=1)


async def test_a_device_that_is_lost_with_the_new_sessions_ends_the_lane() -> None:
    class Lost(GatedEngine):
        def renew(self) -> None:
            raise DeviceLost("gone")

    async with gated(lambda number: number == 0, cores=1, kind=Lost) as (it, _):
        await hang(it, 1, 0)
        await it.until(lambda: it.ledger.lanes == {0: LaneState.DEAD})
        assert it.dispatcher.is_lost


async def test_a_model_without_any_device_is_lost() -> None:
    async with stage(engine=RaisingEngine(lambda _: DeviceLost("gone"))) as it:
        for text in range(2):
            assert not it.dispatcher.is_lost
            with pytest.raises(LaneLost):
                await it.submit(text)
        assert it.dispatcher.is_lost
        with pytest.raises(LaneLost):
            await it.submit(9)
        await it.until(lambda: it.ledger.lanes == dict.fromkeys(range(2), LaneState.DEAD))


async def test_a_lane_without_its_device_is_not_replaced() -> None:
    engine = RaisingEngine(lambda call: DeviceLost("gone") if call in (0, 2) else None)
    async with stage(engine=engine) as it:
        with pytest.raises(LaneLost):
            await it.submit(1)
        await it.submit(2)
        assert (it.dispatcher.is_degraded, it.dispatcher.is_lost) == (True, False)
        it.pass_time(100.0)
        assert it.states.count(LaneState.DEAD) == 1
        with pytest.raises(LaneLost):
            await it.submit(3)
        assert it.dispatcher.is_lost


async def test_a_thread_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with gated(lambda number: number == 0, cores=1) as (it, _):

        def refuse(*_: object) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(it.dispatcher.lanes.watch, "_start_thread", refuse)
        await hang(it, 1, 0)
        it.pass_time(10.0)  # many more tries than replacements
        assert it.dispatcher.is_degraded
        assert it.dispatcher.is_lost
        monkeypatch.undo()
        it.pass_time(1.0)
        await assert_whole(it, lanes=1)


# What is said.


async def test_the_log_tells_what_happened_with_predicted_and_elapsed_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        async with gated(lambda number: number == 0) as (it, engine):
            await hang(it, 1, 0)
            (lane,) = (number for number, state in it.ledger.lanes.items() if state is LaneState.HUNG)
            it.pass_time(HANG_S)
            await it.until(lambda: set(it.ledger.lanes.values()) == {LaneState.IDLE})
            engine.gates[0].set()
            await it.until(lambda: not it.dispatcher.lanes.watch._stuck)
            it.stand_still(0.0)
    lost, replaced, returned = [
        r.getMessage() for r in caplog.records if r.name.startswith("vecmill.batching")
    ]
    call = "(1 texts with 10 tokens on 2 cores: {} s elapsed, 0.0 s predicted)"
    assert lost == f"Lane {lane} is hung {call.format('11.0')}. Its 1 texts fail."
    assert replaced == f"Lane {lane} is replaced by a new thread {call.format('21.0')}."
    assert (
        returned
        == f"Lane {lane} was replaced, and its thread ends: its call has returned {call.format('21.0')}."
    )


async def test_closing_does_not_wait_for_lost_lanes() -> None:
    async with gated(lambda number: number == 0) as (it, engine):
        await hang(it, 1, 0)
        await it.dispatcher.close()
        assert not engine.gates[0].is_set()


async def test_closing_answers_the_texts_of_calls_that_do_not_return(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "JOIN_TIMEOUT_S", 0.01)
    async with gated(lambda number: number < 2) as (it, engine):
        stuck = [it.submit_soon(text, length=300) for text in range(2)]
        await it.until_called(2)
        await it.dispatcher.close()
        for task in stuck:
            with pytest.raises(ShuttingDown):
                await task
        engine.close()
        for lane in it.dispatcher.lanes.all:
            assert lane.thread is not None
            await asyncio.to_thread(lane.thread.join)


async def test_closing_waits_for_all_hung_calls_together() -> None:
    waited_s: list[float] = []

    class Thread(threading.Thread):
        def join(self, timeout: float | None = None) -> None:
            assert timeout is not None
            waited_s.append(timeout)
            it.time.now += timeout

    async with stage(cores=4) as it:
        threads = [lane.thread for lane in it.dispatcher.lanes.all]
        for lane in it.dispatcher.lanes.all:
            lane.thread = Thread()
        it.dispatcher.lanes.join()
        for lane, thread in zip(it.dispatcher.lanes.all, threads, strict=True):
            lane.thread = thread
    assert sum(waited_s) == lanes_module.JOIN_TIMEOUT_S


async def test_threads_that_end_at_closing_are_not_dead() -> None:
    async with stage() as it:
        await it.submit(1)
        await it.dispatcher.close()
        it.dispatcher.lanes.tick()
        assert not it.dispatcher.is_degraded


# What is admitted.


async def test_less_work_is_admitted_while_a_lane_is_lost() -> None:
    async with gated(lambda number: number == 0) as (it, engine):
        forecast = it.dispatcher.scheduler.forecast
        cores = [forecast.cores]
        await hang(it, 1, 0)
        cores.append(forecast.cores)
        engine.gates[0].set()
        await it.until(lambda: LaneState.HUNG not in it.ledger.lanes.values())
        cores.append(forecast.cores)
        assert cores == [2, 1, 2]


# What a batch costs.


async def test_a_batch_looks_at_no_texts_of_other_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with gated(lambda _: True, cores=4) as (it, engine):
        running = []
        for call in range(3):
            running.append(it.submit_soon(*range(100 * call, 100 * call + 6)))  # one batch
            await it.until_called(call + 1)
        assert it.dispatcher.scheduler.queue.work_texts == 0
        seen: list[Job] = []

        def watched(job: Job) -> bool:
            seen.append(job)
            return is_long(job)

        monkeypatch.setattr(scheduler_module, "is_long", watched)
        running.append(it.submit_soon(1_000))
        await it.until_called(4)
        assert len(seen) <= 1
        engine.close()
        await asyncio.gather(*running)
