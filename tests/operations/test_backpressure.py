"""Calls that find a full queue wait for room in order, and none is lost, whatever happens meanwhile."""

import asyncio
import gc
import random
import threading
from collections.abc import AsyncIterator, Callable

import numpy as np
import pytest

from support.full_queue import fill_queue
from support.http_server import embedded_model
from vecmill import (
    DeadlineExceeded,
    Embed,
    InvalidRequest,
    Mill,
    MillConfig,
    Priority,
    QueueConfig,
    QueueFull,
    ShuttingDown,
    SyncMill,
)
from vecmill.engines.fake import FakeEngine, Fault, FaultScript, hash_row
from vecmill.operations.backpressure import MOST_TRYING, SHORT_CHARACTERS, Backpressure
from vecmill.requests import Caller

NOBODY = Caller()
SMALL = QueueConfig(max_queue_texts=96)  # two thirds of which one client may have
FULL = QueueFull("full", retry_after_s=0.01)


class Room:
    """Room for a few calls at once, which notes in what order they were admitted."""

    def __init__(self, places: int) -> None:
        self.places, self.tries, self.order = places, 0, list[int]()
        self.line = Backpressure()

    async def ask(self, number: int, caller: Caller = NOBODY, *, limit_s: float = 1e9) -> int:
        async def call(asked: Caller) -> int:
            self.tries += 1
            if not self.places:
                raise FULL
            self.places -= 1
            self.order.append(number)
            if asked.on_admission is not None:
                asked.on_admission()
            try:
                await asyncio.sleep(0)
            finally:
                self.places += 1
            return number

        return await self.line.run(call, caller, (1,), limit_s)


async def test_calls_are_admitted_in_the_order_in_which_they_came() -> None:
    room = Room(places=3)
    assert await asyncio.gather(*map(room.ask, range(500))) == [*range(500)]
    assert room.order == [*range(500)]
    assert room.tries <= 2 * 500  # one that fails for each that ends, not one for each that waits


async def test_background_calls_wait_behind_all_others() -> None:
    room, background = Room(places=1), Caller(Priority.BACKGROUND)
    calls = [room.ask(number, background if number < 5 else NOBODY) for number in range(10)]
    await asyncio.gather(*calls)
    assert room.order == [0, *range(5, 10), *range(1, 5)]


async def test_a_client_that_finds_no_room_keeps_no_other_client_back() -> None:
    line, may_enter = Backpressure(), False

    async def call(caller: Caller) -> str | None:
        if caller.client == "greedy" and not may_enter:
            raise QueueFull("full", retry_after_s=60.0)
        return caller.client

    greedy = [asyncio.ensure_future(line.run(call, Caller(client="greedy"), (1,), 1e9)) for _ in range(3)]
    await asyncio.sleep(0)
    assert await line.run(call, Caller(client="modest"), (1,), 1e9) == "modest"
    assert not any(each.done() for each in greedy)
    may_enter = True
    await line.run(call, Caller(client="modest"), (1,), 1e9)
    assert await asyncio.gather(*greedy) == ["greedy"] * 3
    assert not any(line._lines)  # nothing is kept of clients that are gone


async def test_a_call_that_is_cancelled_in_line_keeps_nobody_back() -> None:
    room, draw = Room(places=1), random.Random(3)
    calls = [asyncio.ensure_future(room.ask(number)) for number in range(200)]
    while not all(each.done() for each in calls):
        draw.choice(calls).cancel()
        await asyncio.sleep(0)
    ended = await asyncio.gather(*calls, return_exceptions=True)
    answered = [each for each in ended if not isinstance(each, BaseException)]
    assert answered == sorted(answered) == room.order[-len(answered) :] or set(answered) <= set(room.order)
    assert room.places == 1
    assert await room.ask(1_000) == 1_000


async def test_a_call_waits_as_long_as_its_time_limit() -> None:
    room = Room(places=0)
    with pytest.raises(DeadlineExceeded, match=r"found no room within 0\.02 s"):
        await room.ask(1, Caller(timeout_s=0.02), limit_s=0.02)
    room.places = 1
    assert await room.ask(2) == 2


async def test_room_that_others_leave_is_found_without_an_end_of_a_call() -> None:
    room = Room(places=0)
    waiting = [asyncio.ensure_future(room.ask(number)) for number in range(3)]
    await asyncio.sleep(0)
    room.places = 1
    assert await asyncio.gather(*waiting) == [0, 1, 2]


async def test_a_call_is_given_what_is_left_of_its_own_time() -> None:
    line, given = Backpressure(), list[float | None]()

    async def call(caller: Caller) -> None:
        given.append(caller.timeout_s)
        if len(given) < 3:
            raise FULL

    await line.run(call, Caller(timeout_s=5.0), (1,), 5.0)
    first, second, third = given
    assert first == 5.0
    assert first > (second or 0) > (third or 0) > 0


async def test_few_calls_try_at_once_and_a_short_one_does_not_wait_for_long_ones() -> None:
    line, trying, most = Backpressure(), 0, 0
    may_enter = asyncio.Event()

    async def call(caller: Caller) -> None:
        nonlocal trying, most
        trying += 1
        most = max(most, trying)
        await may_enter.wait()  # while its texts are tokenised
        trying -= 1
        assert caller.on_admission is not None
        caller.on_admission()
        await asyncio.sleep(0)

    async def enter_at_once(_: Caller) -> bool:
        return True

    long = [asyncio.ensure_future(line.run(call, NOBODY, (SHORT_CHARACTERS + 1,), 1e9)) for _ in range(50)]
    await asyncio.sleep(0)
    assert await line.run(enter_at_once, NOBODY, (1,), 1e9)
    may_enter.set()
    await asyncio.gather(*long)
    assert most == MOST_TRYING


async def test_an_error_of_a_call_is_its_own_and_lets_the_next_one_try() -> None:
    room = Room(places=1)

    async def fail(_: Caller) -> None:
        await asyncio.sleep(0)
        raise InvalidRequest("wrong")

    failing = asyncio.ensure_future(room.line.run(fail, NOBODY, (1,), 1e9))
    ended = await asyncio.gather(*map(room.ask, range(5)), failing, return_exceptions=True)
    assert ended[:5] == [*range(5)]
    assert isinstance(ended[5], InvalidRequest)


async def test_calls_in_line_get_a_typed_error_when_the_mill_closes() -> None:
    room = Room(places=0)
    waiting = [asyncio.ensure_future(room.ask(number)) for number in range(3)]
    await asyncio.sleep(0)
    room.line.close()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(each) for each in ended] == [ShuttingDown] * 3
    with pytest.raises(ShuttingDown, match="The mill is closed"):
        await room.ask(4)


# With a mill.


@pytest.fixture
async def mill() -> AsyncIterator[Mill]:
    async with Mill(embedded_model(), MillConfig(engine="fake", queue=SMALL)) as mill:
        yield mill


@pytest.mark.promise("waits-for-room")
@pytest.mark.parametrize(
    ("queue", "calls"),
    [
        (SMALL, 100),
        pytest.param(SMALL, 2_500, marks=pytest.mark.full),
        pytest.param(QueueConfig(), 2_500, marks=pytest.mark.full),
    ],
)
async def test_thousands_of_calls_of_64_texts_all_get_their_answers(queue: QueueConfig, calls: int) -> None:
    words = ("hello", 7592), ("world", 2088)
    rows = np.stack([hash_row(np.array([101, number, 102]), 384) for _, number in words] * 32)
    async with Mill(embedded_model(), MillConfig(engine="fake", queue=queue)) as mill:
        texts = [word for word, _ in words] * 32
        for found in await asyncio.gather(*(mill.embed(texts) for _ in range(calls))):
            np.testing.assert_array_equal(found, rows)
        assert mill.backlog.texts == 0


@pytest.mark.promise("waits-for-room")
async def test_calls_of_a_real_model_wait_for_room() -> None:
    async with Mill(config=MillConfig(cores=1, queue=QueueConfig(max_queue_texts=24))) as mill:
        texts = [[f"text {number} of call {call}" for number in range(16)] for call in range(12)]
        found = await asyncio.gather(*map(mill.embed, texts))
        np.testing.assert_allclose(found[7], await mill.embed(texts[7]), atol=1e-5)
    assert len(found) == 12


@pytest.mark.promise("waits-for-room")
async def test_calls_of_any_size_that_come_and_leave_are_answered_or_cancelled(mill: Mill) -> None:
    draw = random.Random(7)

    async def ask(number: int) -> int:
        texts = [f"{number} " * draw.randint(1, 80)] * draw.randint(1, 60)
        priority = draw.choice([None, Priority.BACKGROUND])
        result = await mill.run(Embed(tuple(texts), priority=priority))
        assert len(result.embeddings) == len(texts)
        return number

    calls = [asyncio.ensure_future(ask(number)) for number in range(300)]
    leaving = draw.sample(range(300), 100)
    for number in leaving:
        await asyncio.sleep(0)
        calls[number].cancel()
    ended = await asyncio.gather(*calls, return_exceptions=True)
    for number, end in enumerate(ended):
        assert end == number or (number in leaving and isinstance(end, asyncio.CancelledError))
    assert len(await mill.embed(["well?"])) == 1


async def test_whoever_asks_for_it_is_refused_at_once() -> None:
    async with fill_queue(embedded_model()) as full:
        waiting = asyncio.ensure_future(full.mill.embed("again"))
        await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            await full.mill.run(Embed(("refused",)), wait_for_room=False)
        assert not waiting.done()
        full.release()
        await waiting


async def test_the_time_of_a_call_includes_its_wait_for_room() -> None:
    clock = asyncio.get_running_loop().time
    async with fill_queue(embedded_model()) as full:
        began = clock()
        waiting = asyncio.ensure_future(full.mill.run(Embed(("again",))))
        await asyncio.sleep(0)
        waited_s = clock() - began
        full.release()
        late = (await waiting).timings
        took_s = clock() - began
        prompt = (await full.mill.run(Embed(("again",)))).timings
    assert waited_s <= late.room_s < late.total_s <= took_s
    assert late.tokenize_s + late.queue_s + late.inference_s <= late.total_s - late.room_s + 1e-6
    assert prompt.room_s == 0.0


async def test_a_request_without_a_time_limit_has_none(mill: Mill) -> None:
    assert mill.config.queue.timeout_s is None
    assert mill._loaded is not None
    assert mill._loaded.longest_s == float("inf")


async def test_waiting_calls_end_with_the_mill() -> None:
    engine = FakeEngine(dim=384, lane_widths=(1,), faults=FaultScript(calls={0: Fault.HANG}))
    mill = Mill(embedded_model(), MillConfig(cores=1, queue=QueueConfig(max_queue_texts=1)), engine=engine)
    await mill.start()
    calls = [asyncio.ensure_future(mill.embed("hello"))]
    await asyncio.to_thread(engine.wait_for_calls, 1)
    calls += [asyncio.ensure_future(mill.embed(f"hello {number}")) for number in range(20)]
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(mill.close())
    await asyncio.sleep(0)
    engine.released.set()
    await closing
    first, *others = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(first, np.ndarray)
    assert {type(each) for each in others} == {ShuttingDown}
    assert {str(each) for each in others} == {"The mill is closed, and answers no more requests."}


def run_in_threads(count: int, function: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=function, args=(number,)) for number in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert not any(each.is_alive() for each in threads)


def test_threads_wait_for_room_too() -> None:
    shapes = list[tuple[int, ...]]()
    with SyncMill(embedded_model(), MillConfig(engine="fake", queue=SMALL)) as mill:
        run_in_threads(40, lambda number: shapes.append(mill.embed([f"{number}"] * 60).shape))
    assert shapes == [(60, 384)] * 40


def test_a_synchronous_mill_that_closes_leaves_no_thread_waiting() -> None:
    mill = SyncMill(embedded_model(), MillConfig(engine="fake", queue=SMALL))
    ended = list[object]()
    begun = threading.Barrier(9)

    def ask(number: int) -> None:
        begun.wait(60)
        try:
            while True:
                mill.embed([f"{number}"] * 60)
        except ShuttingDown as error:
            ended.append(error)

    def close_when_begun() -> None:
        begun.wait(60)
        mill.close()

    closer = threading.Thread(target=close_when_begun)
    closer.start()
    run_in_threads(8, ask)
    closer.join(60)
    assert len(ended) == 8
    with pytest.raises(ShuttingDown, match="The mill is closed"):
        mill.embed("hello")
    gc.collect()  # a coroutine that was never awaited would warn here
