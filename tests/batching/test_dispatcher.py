"""Requests come in on the event loop, lanes compute them, each gets its own answer."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest
import uvloop

from support.dispatching import PER_TOKEN_S, Ledger, Stage, row_of, stage
from support.failing_library import LibraryPanic
from vecmill.batching.dispatcher import Dispatcher
from vecmill.batching.forecast import LONG_CALL_S
from vecmill.batching.pace import PAIR_TOKENS
from vecmill.batching.scheduler import TRY_SHARE, Ask
from vecmill.config import BatchConfig, MillConfig, QueueConfig
from vecmill.engines.fake import FakeEngine, Fault, FaultScript
from vecmill.errors import (
    DeadlineExceeded,
    InferenceFailed,
    QueueFull,
    RequestTooLarge,
    ShuttingDown,
)
from vecmill.hardware.budget import CoreBudget
from vecmill.requests import Priority
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import Embeddings
from vecmill.values.engine_plan import CostModel
from vecmill.values.observer import Observer

POISON = 666
TEXT_TOKENS = 10  # of `Stage.submit`


@asynccontextmanager
async def busy_stage(config: MillConfig | None = None) -> AsyncIterator[Stage]:
    """A stage whose only lane computes text 0 until the engine is released, or the block ends."""
    script = FaultScript(calls={0: Fault.HANG}, poison=frozenset({POISON}))
    async with stage(script, cores=1, config=config or MillConfig(hang_s=1e6)) as it:
        first = it.submit_soon(0, timeout_s=1e5)
        await it.until_called(1)
        yield it
        it.engine.released.set()
        await first


@pytest.mark.promise("answered-once")
async def test_everyone_gets_their_own_rows_in_their_own_order() -> None:
    async with stage() as it:
        requests = [[100 * r + t for t in range(r % 7 + 1)] for r in range(200)]
        answers = await asyncio.gather(*(it.submit(*texts) for texts in requests))
        for texts, answer in zip(requests, answers, strict=True):
            for text, row in zip(texts, answer.embeddings, strict=True):
                np.testing.assert_array_equal(row, row_of(text))


async def test_a_request_whose_admission_cannot_be_reported_leaves_nothing_in_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(self: Ledger, texts: int, tokens: int) -> None:
        self.texts["admitted"] += texts
        raise OSError("nowhere to write it")

    async with busy_stage() as it:
        monkeypatch.setattr(Ledger, "admitted", fail)
        with pytest.raises(OSError, match="nowhere"):
            await it.submit(2, 3)
        assert it.dispatcher.scheduler.queue.open_texts == 1


@pytest.mark.parametrize("error", [OSError, LibraryPanic], ids=lambda kind: kind.__name__)
async def test_an_observer_that_raises_keeps_nobody_from_an_answer(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Ledger, texts: int) -> None:
        self.texts["done"] += texts
        raise error("nowhere to write it")

    monkeypatch.setattr(Ledger, "done", fail)
    async with stage() as it:
        for text in range(5):
            np.testing.assert_array_equal((await it.submit(text)).embeddings[0], row_of(text))
        assert not it.dispatcher.is_degraded


async def test_a_tick_that_fails_is_not_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with busy_stage() as it:
        timer = it.dispatcher._timer
        monkeypatch.setattr(it.dispatcher.lanes, "tick", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            it.pass_time(1.0)
        monkeypatch.undo()
        second = it.submit_soon(2, timeout_s=1e5)
        await asyncio.sleep(0)
        assert it.dispatcher._timer not in (None, timer)
        it.engine.released.set()
        await second


async def test_what_arrives_while_the_lane_is_busy_shares_the_next_batch() -> None:
    async with busy_stage() as it:
        tasks = [it.submit_soon(text) for text in range(2, 10)]
        await asyncio.sleep(0)
        it.engine.released.set()
        await asyncio.gather(*tasks)
        assert [texts for texts, _ in it.engine.calls] == [1, 8]


async def test_a_lone_request_runs_wide_and_a_crowd_runs_narrow() -> None:
    config = MillConfig(batch=BatchConfig(max_batch_tokens=128))
    async with stage(config=config) as it:
        await it.submit(1, 2, 3)
        assert it.engine.calls == [(3, 2)]
        await it.submit(*range(10, 60))
        assert {width for _, width in it.engine.calls[1:]} == {1}


async def test_a_lone_text_runs_wide_whatever_its_length() -> None:
    config = MillConfig(batch=BatchConfig(max_batch_tokens=8))  # less than one text
    # Two texts run side by side, or one after the other if they take long.
    for text_s, width in ((0.9 * LONG_CALL_S, 1), (1.1 * LONG_CALL_S, 2)):
        async with stage(config=config, per_token_s=text_s / TEXT_TOKENS) as it:
            await it.submit(1)
            await it.submit(2, 3)
            assert it.engine.calls == [(1, 2), (1, width), (1, width)]


async def test_no_more_cores_are_used_than_the_budget_has() -> None:
    budget_cores = 2
    budget, all_busy = CoreBudget(budget_cores), threading.Event()
    busy, peak = 0, 0

    class Counting(FakeEngine):
        def run(self, batch: Batch, *, width: int) -> Embeddings:
            nonlocal busy, peak
            with budget.lock:
                busy += width
                peak = max(peak, busy)
                if busy == budget_cores:
                    all_busy.set()
            all_busy.wait(20)  # calls are so short that they might never meet
            rows = super().run(batch, width=width)
            with budget.lock:
                busy -= width
            return rows

    pair = [
        Dispatcher(Counting(), MillConfig(), budget=budget, observer=Observer(), cost=CostModel(0.0, 1e-6))
        for _ in range(2)
    ]
    for dispatcher in pair:
        dispatcher.start()
    sequences = [[TokenSequence.of([text] * 60)] for text in range(200)]
    await asyncio.gather(
        *(
            dispatcher.submit(one, Ask(Priority.INTERACTIVE, timeout_s=30))
            for one in sequences
            for dispatcher in pair
        )
    )
    for dispatcher in pair:
        await dispatcher.close()
    assert peak == budget_cores
    assert budget.free == 2


async def test_equal_texts_in_flight_are_computed_once() -> None:
    async with busy_stage() as it:
        tasks = [it.submit_soon(0) for _ in range(3)] + [it.submit_soon(2, 2)]
        await asyncio.sleep(0)
        it.engine.released.set()
        await asyncio.gather(*tasks)
        assert [texts for texts, _ in it.engine.calls] == [1, 1]
        assert it.ledger.texts["joined"] == 4


async def test_only_the_request_with_the_guilty_text_fails() -> None:
    async with busy_stage() as it:
        good = [it.submit_soon(text) for text in range(2, 8)]
        bad = it.submit_soon(POISON)
        await asyncio.sleep(0)
        it.engine.released.set()
        await asyncio.gather(*good)
        with pytest.raises(InferenceFailed):
            await bad


@pytest.mark.promise("departed-clients")
async def test_a_request_whose_caller_is_gone_never_runs() -> None:
    async with busy_stage() as it:
        gone = it.submit_soon(2, 3)
        await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        assert it.ledger.texts["cancelled"] == 2
    assert len(it.engine.calls) == 1


@pytest.mark.promise("deadlines-kept")
async def test_a_request_past_its_deadline_is_answered_and_never_runs() -> None:
    async with busy_stage() as it:
        late = it.submit_soon(2, timeout_s=5.0)
        await asyncio.sleep(0)
        it.pass_time(4.9)
        assert not late.done()
        it.pass_time(0.2)
        with pytest.raises(DeadlineExceeded):
            await late
    assert len(it.engine.calls) == 1


async def test_a_full_queue_refuses_with_the_measured_time_to_come_back() -> None:
    config = MillConfig(hang_s=1e6, queue=QueueConfig(max_queue_tokens=100))
    async with busy_stage(config) as it:
        waiting = it.submit_soon(*range(2, 12))
        await asyncio.sleep(0)
        with pytest.raises(QueueFull) as refusal:
            await it.submit(99)
        assert refusal.value.retry_after_s == 0.05  # 100 tokens take less
        with pytest.raises(RequestTooLarge):
            await it.submit(*range(20, 31))
        it.engine.released.set()
        await waiting
        assert it.ledger.rejections == {"queue_full": 1, "too_large": 1}


async def test_what_would_wait_too_long_is_refused_with_the_time_until_there_is_room() -> None:
    config = MillConfig(hang_s=1e6, queue=QueueConfig(target_wait_s=2.0))
    async with busy_stage(config) as it:
        length = round(0.4 / PER_TOKEN_S)
        waiting = [it.submit_soon(1, length=100), it.submit_soon(2, length=100, client="other")]
        waiting += [it.submit_soon(text, length=length // 80, client="many") for text in range(3, 20)]
        await asyncio.sleep(0)
        it.dispatcher.refuse_if_full("many")
        crowd = [it.submit_soon(text, length=length // 8, client="many") for text in range(100, 200)]
        await asyncio.sleep(0)
        refused = [task for task in crowd if task.done()]
        assert refused
        for task in refused:
            with pytest.raises(QueueFull) as refusal:
                task.result()
            assert 0 < refusal.value.retry_after_s < 2.0
        with pytest.raises(QueueFull):
            it.dispatcher.refuse_if_full("many")
        it.dispatcher.refuse_if_full("many", most_tokens=10**6)  # it may be bulk work, of which nothing waits
        waiting.append(it.submit_soon(999, client="newcomer"))
        it.engine.released.set()
        await asyncio.gather(*waiting, *(task for task in crowd if task not in refused))


async def test_large_requests_are_refused_by_their_likely_size_before_they_are_tokenised() -> None:
    length = round(26 / 1_000 / PER_TOKEN_S)
    large, small = [length] * 1_000, [length] * 16
    config = MillConfig(hang_s=1e6, queue=QueueConfig(max_queue_tokens=10**7, timeout_s=30.0))
    async with busy_stage(config) as it:
        costs_s = it.dispatcher.likely_costs_s(large)
        it.dispatcher.refuse_if_full("many", likely_costs_s=costs_s)
        waiting = [it.submit_soon(*range(n, n + 1_000), length=length, client="many") for n in (1_000, 2_000)]
        await asyncio.sleep(0)
        with pytest.raises(QueueFull) as refusal:
            it.dispatcher.refuse_if_full("many", most_tokens=2 * sum(large), likely_costs_s=costs_s)
        assert 1 < refusal.value.retry_after_s < 60
        it.dispatcher.refuse_if_full(
            "many", likely_costs_s=it.dispatcher.likely_costs_s(small)
        )  # it is interactive work
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_time_limit_that_no_idle_machine_could_meet_is_refused_at_once() -> None:
    async with stage() as it:
        with pytest.raises(DeadlineExceeded, match=r"takes about 6\.48 s .* 5 s"):
            await it.submit(*range(1_000), length=900, timeout_s=5.0)
        assert it.engine.calls == []
        assert it.ledger.rejections == {"too_late": 1}


async def test_a_wrong_prediction_refuses_no_request_for_ever() -> None:
    async with stage(per_token_s=100 * PER_TOKEN_S) as it:  # the warm-up was slow
        with pytest.raises(DeadlineExceeded, match=r"takes about 0\.105 s .* 0\.05 s"):
            await it.submit(1, length=100, timeout_s=0.05)
        it.time.now += 1.1 * 0.05 / TRY_SHARE
        for text in range(3):
            await it.submit(text, length=100, timeout_s=0.05)


async def test_a_request_that_is_tried_in_vain_is_not_tried_again_soon() -> None:
    config = MillConfig(hang_s=1e6)
    script = FaultScript(calls={0: Fault.HANG})
    async with stage(script, cores=1, config=config, per_token_s=100 * PER_TOKEN_S) as it:
        with pytest.raises(DeadlineExceeded, match="takes about"):
            await it.submit(1, length=100, timeout_s=0.05)
        it.time.now += 1.1 * 0.05 / TRY_SHARE
        tried = it.submit_soon(1, length=100, timeout_s=0.05)
        await it.until_called(1)
        it.pass_time(0.06)
        with pytest.raises(DeadlineExceeded, match="was not there"):
            await tried
        with pytest.raises(DeadlineExceeded, match="takes about"):
            await it.submit(2, length=100, timeout_s=0.05)
        it.engine.released.set()


async def test_an_idle_server_admits_what_it_may_just_answer_in_time() -> None:
    async with stage() as it:
        own_s = 100 * PER_TOKEN_S * 900 * (1 + 900 / PAIR_TOKENS) / 2
        assert own_s > MillConfig().batch.bulk_s
        await it.submit(*range(100), length=900, timeout_s=1.2 * own_s)


async def test_the_time_limit_grows_with_the_work() -> None:
    config = MillConfig(hang_s=1e6, queue=QueueConfig(timeout_s=1.0))
    async with stage(FaultScript(calls={0: Fault.HANG}), cores=1, config=config) as it:
        slow = it.submit_soon(1, length=round(10 / PER_TOKEN_S / 500))
        await it.until_called(1)
        it.pass_time(1.1)
        assert not slow.done()
        it.pass_time(0.1)
        with pytest.raises(DeadlineExceeded):
            await slow
        it.engine.released.set()


async def test_closing_answers_what_waits_and_lets_running_calls_finish() -> None:
    async with busy_stage() as it:
        waiting = it.submit_soon(2)
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(it.dispatcher.close())
        with pytest.raises(ShuttingDown):
            await waiting
        it.engine.released.set()
        await closing
        with pytest.raises(ShuttingDown):
            await it.submit(3)


@pytest.mark.promise("idle-is-idle")
async def test_an_idle_dispatcher_does_nothing_at_all() -> None:
    async with stage() as it:
        await it.submit(1)
        it.pass_time(0)
        assert it.dispatcher._timer is None


def test_what_is_due_at_once_keeps_the_next_request_out_on_no_loop() -> None:
    # For what is due in less than half a millisecond uvloop gives a timer that does not know when that is.
    async def submit_two() -> None:
        async with stage() as it:
            requests = await asyncio.gather(it.submit(1, timeout_s=3e-4), it.submit(2, timeout_s=3e-4))
            for text, request in zip((1, 2), requests, strict=True):
                np.testing.assert_array_equal(request.embeddings[0], row_of(text))

    uvloop.run(submit_two())


@pytest.mark.parametrize("steps", range(12))
async def test_cancelling_at_any_moment_loses_nobody_else(steps: int) -> None:
    async with stage(cores=1) as it:
        victim = it.submit_soon(1, 2, 3)
        others = [it.submit_soon(text) for text in (2, 3, 4)]
        for _ in range(steps):
            await asyncio.sleep(0)
        victim.cancel()
        answers = await asyncio.gather(*others)
        for text, answer in zip((2, 3, 4), answers, strict=True):
            np.testing.assert_array_equal(answer.embeddings[0], row_of(text))
        await asyncio.gather(victim, return_exceptions=True)


@pytest.mark.parametrize("fault", [Fault.RAISE, Fault.NAN, Fault.SHORT, Fault.DIE])
@pytest.mark.parametrize("number", range(6))
async def test_a_fault_in_any_call_leaves_every_text_answered_once(fault: Fault, number: int) -> None:
    async with stage(FaultScript(calls={number: fault})) as it:
        tasks = [it.submit_soon(3 * r, 3 * r + 1, length=50) for r in range(12)]
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        for r, answer in enumerate(answers):
            if not isinstance(answer, BaseException):
                np.testing.assert_array_equal(answer.embeddings[0], row_of(3 * r, 50))
        assert sum(isinstance(answer, Exception) for answer in answers) <= 6
        while len(it.engine.calls) <= number:
            await asyncio.gather(it.submit(998), return_exceptions=True)
        await it.submit(999)
