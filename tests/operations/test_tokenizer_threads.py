"""Texts are tokenised in threads that take turns: within bounds and deadlines, for clients that wait."""

import asyncio
import math
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from vecmill.errors import DeadlineExceeded, InvalidRequest, QueueFull, ShuttingDown
from vecmill.operations import tokenizer_threads
from vecmill.operations.tokenizer_threads import (
    FIRST_PACE,
    INLINE_CHARACTERS,
    SLICE_CHARACTERS,
    Load,
    TokenizerThreads,
)
from vecmill.operations.turns import LONG_PIECE
from vecmill.tokenization.pieces import Slices
from vecmill.values.clock import monotonic
from vecmill.values.observer import Observer, Rejection

LARGE = 1_000_000
MOST = 10 * LARGE


class Rejections(Observer):
    def __init__(self) -> None:
        self.reasons: list[Rejection] = []

    def rejected(self, reason: Rejection) -> None:
        self.reasons.append(reason)


class Gate:
    """Work that waits inside its first piece until it is released, and counts its pieces."""

    def __init__(self, size: int = LARGE, piece: int = SLICE_CHARACTERS) -> None:
        self.released = threading.Event()
        self.entered = threading.Event()
        self.pieces = 0
        self.load = Load(1, size, size)
        self._sizes = [piece] * (size // piece)

    def work(self) -> Slices[str]:
        for size in self._sizes:
            yield size
            self.entered.set()
            assert self.released.wait(20)
            self.pieces += 1
        return threading.current_thread().name

    async def wait(self) -> None:
        assert await asyncio.to_thread(self.entered.wait, 20)


@pytest.fixture
def observer() -> Rejections:
    return Rejections()


@pytest.fixture
async def pool(observer: Rejections) -> AsyncIterator[TokenizerThreads]:
    pool = TokenizerThreads(MOST, MOST, observer=observer, clock=monotonic)
    yield pool
    pool.close()


def short() -> Slices[str]:
    yield 2_000
    return threading.current_thread().name


SHORT = Load(1, 2_000, 2_000)


async def begin(pool: TokenizerThreads) -> "tuple[Gate, asyncio.Task[str]]":
    """Texts that are tokenised until the gate is released."""
    gate = Gate()
    task = asyncio.create_task(pool.run(gate.work(), gate.load, math.inf))
    await gate.wait()
    return gate, task


def in_s(seconds: float) -> float:
    return monotonic() + seconds


async def test_short_texts_are_tokenised_at_once(pool: TokenizerThreads) -> None:
    load = Load(2, 900, 900)
    assert await pool.run(short(), load, math.inf) == threading.current_thread().name
    assert (await pool.run(short(), SHORT, math.inf)).startswith("vecmill-tokenize")


@pytest.mark.parametrize("load", [Load(1, INLINE_CHARACTERS, INLINE_CHARACTERS), Load(2_048, 0, 0)])
async def test_many_texts_are_not_short_even_if_empty(pool: TokenizerThreads, load: Load) -> None:
    assert (await pool.run(short(), load, math.inf)).startswith("vecmill-tokenize")


async def test_short_texts_that_come_together_do_not_add_up_to_a_pause(pool: TokenizerThreads) -> None:
    names = await asyncio.gather(*(pool.run(short(), Load(1, 900, 900), math.inf) for _ in range(100)))
    inline = names.count(threading.current_thread().name)
    assert 10 < inline < 20
    assert await pool.run(short(), Load(1, 900, 900), math.inf) == threading.current_thread().name


async def test_each_turn_of_the_event_loop_may_read_many_small_texts(pool: TokenizerThreads) -> None:
    for _ in range(10):
        assert pool.may_run_inline(1, 900)
    await asyncio.sleep(0)  # the end of the turn is looked for, as these were many
    inline = [pool.may_run_inline(1, 900) for _ in range(20)]
    assert inline == [True] * inline.count(True) + [False] * inline.count(False)
    assert 15 < inline.count(True) < 20
    # A turn that reads few texts leaves a little less to the next.
    await asyncio.sleep(0)
    assert pool.may_run_inline(1, 900)
    await asyncio.sleep(0)
    assert sum(pool.may_run_inline(1, 900) for _ in range(20)) == inline.count(True) - 1


@pytest.mark.promise("no-starvation")
async def test_a_short_text_passes_large_ones(pool: TokenizerThreads) -> None:
    gates = [Gate(piece=LONG_PIECE + 1) for _ in range(3)]
    tasks = [asyncio.create_task(pool.run(gate.work(), gate.load, math.inf)) for gate in gates]
    await gates[0].wait()
    assert await pool.run(short(), SHORT, in_s(10)) == "vecmill-tokenize-0"
    assert [gate.pieces for gate in gates] == [0, 0, 0]
    for gate in gates:
        gate.released.set()
    assert await asyncio.gather(*tasks) == ["vecmill-tokenize-1"] * 3


@pytest.mark.promise("deadlines-kept")
async def test_work_whose_deadline_passes_is_dropped(pool: TokenizerThreads) -> None:
    gate = Gate()
    began = time.perf_counter()
    with pytest.raises(DeadlineExceeded, match="before its texts were tokenised"):
        await pool.run(gate.work(), gate.load, in_s(0.05))
    assert time.perf_counter() - began < 5  # though the piece still runs
    gate.released.set()
    assert await pool.run(short(), SHORT, math.inf)
    assert gate.pieces <= 1


@pytest.mark.promise("departed-clients")
async def test_a_client_that_leaves_takes_its_work_along(pool: TokenizerThreads) -> None:
    gate, task = await begin(pool)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    gate.released.set()
    assert await pool.run(short(), SHORT, math.inf)
    assert gate.pieces <= 1


@pytest.mark.promise("bounded-input")
async def test_waiting_characters_are_bounded(pool: TokenizerThreads, observer: Rejections) -> None:
    gates = [Gate(size=MOST // 2) for _ in range(2)]
    loads = [replace(gate.load, client=name) for gate, name in zip(gates, ("one", "two"), strict=True)]
    tasks = [
        asyncio.create_task(pool.run(gate.work(), load, math.inf))
        for gate, load in zip(gates, loads, strict=True)
    ]
    await gates[0].wait()
    with pytest.raises(QueueFull, match="as many texts to tokenise") as refusal:
        await pool.run(short(), SHORT, math.inf)
    assert 0 < refusal.value.retry_after_s < MOST / FIRST_PACE
    assert observer.reasons == [Rejection.QUEUE_FULL]
    for gate in gates:
        gate.released.set()
    await asyncio.gather(*tasks)
    assert await pool.run(short(), SHORT, math.inf)


@pytest.mark.promise("nobody-shut-out")
async def test_one_client_leaves_room_for_the_texts_of_another(
    pool: TokenizerThreads, observer: Rejections
) -> None:
    gates = [Gate(size=MOST // 3 - 100) for _ in range(3)]
    tasks = [asyncio.create_task(pool.run(gate.work(), gate.load, math.inf)) for gate in gates[:2]]
    await gates[0].wait()
    with pytest.raises(QueueFull, match="as many texts to tokenise"):
        await pool.run(gates[2].work(), gates[2].load, math.inf)
    assert observer.reasons == [Rejection.QUEUE_FULL]
    other = pool.run(gates[2].work(), replace(gates[2].load, client="other"), math.inf)
    tasks.append(asyncio.create_task(other))
    await asyncio.sleep(0)
    for gate in gates:
        gate.released.set()
    assert len(await asyncio.gather(*tasks)) == 3


async def test_a_request_that_cannot_be_in_time_is_refused(
    pool: TokenizerThreads, observer: Rejections
) -> None:
    gate, task = await begin(pool)
    with pytest.raises(QueueFull, match="longer than this request may wait") as refusal:
        await pool.run(short(), gate.load, in_s(0.1))
    assert refusal.value.retry_after_s == pytest.approx(LARGE / FIRST_PACE - 0.1, abs=0.05)
    assert observer.reasons == [Rejection.QUEUE_FULL]
    assert await pool.run(short(), SHORT, in_s(0.5))  # goes before the large work
    gate.released.set()
    await task


async def test_errors_are_those_of_the_work(pool: TokenizerThreads) -> None:
    def fail() -> Iterator[int]:
        yield 1
        raise InvalidRequest("no", field="input")

    for _ in range(3):
        with pytest.raises(InvalidRequest):
            await pool.run(fail(), SHORT, math.inf)  # type: ignore[arg-type]
    assert await pool.run(short(), SHORT, math.inf)


async def test_closing_ends_what_waits(pool: TokenizerThreads) -> None:
    gate, task = await begin(pool)
    pool.close()
    with pytest.raises(ShuttingDown):
        await task
    with pytest.raises(ShuttingDown):
        await pool.run(short(), SHORT, math.inf)
    gate.released.set()
    pool.close()


async def test_a_thread_that_could_not_start_is_started_later(
    pool: TokenizerThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    for _ in range(3):
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", fail)
            with pytest.raises(RuntimeError, match="start new thread"):
                await pool.run(short(), SHORT, in_s(5))
    assert (await pool.run(short(), SHORT, in_s(10))).startswith("vecmill-tokenize")


def test_a_slice_is_shorter_than_a_long_piece() -> None:
    assert tokenizer_threads.SLICE_CHARACTERS < LONG_PIECE


async def test_work_that_is_not_wanted_any_more_ends_before_its_next_slice(pool: TokenizerThreads) -> None:
    gate, is_full = Gate(), threading.Event()

    def check() -> None:
        if is_full.is_set():
            raise QueueFull("full", retry_after_s=1.0)

    task = asyncio.create_task(pool.run(gate.work(), gate.load, in_s(60), check))
    await gate.wait()
    is_full.set()
    gate.released.set()
    with pytest.raises(QueueFull, match="full"):
        await task
    assert gate.pieces < len(range(0, LARGE, SLICE_CHARACTERS)) / 2


def counting(gate: Gate) -> Slices[None]:
    yield from gate.work()


async def begin_count(pool: TokenizerThreads) -> "tuple[Gate, asyncio.Task[None]]":
    gate = Gate()
    task = asyncio.create_task(pool.count(counting(gate), gate.load))
    await gate.wait()
    return gate, task


async def test_texts_that_wait_go_before_counts(pool: TokenizerThreads) -> None:
    gate, task = await begin_count(pool)
    # The count has the one thread for short pieces, and so long texts have the other for themselves.
    assert await pool.run(short(), SHORT, in_s(10)) == "vecmill-tokenize-1"
    gate.released.set()
    await task
    assert gate.pieces == LARGE // SLICE_CHARACTERS


async def test_counts_are_bounded_and_nobody_is_refused_for_them(
    pool: TokenizerThreads, observer: Rejections
) -> None:
    gates = [Gate(size=MOST // 2) for _ in range(4)]
    loads = [replace(gate.load, client=f"client {number}") for number, gate in enumerate(gates)]
    tasks = [
        asyncio.create_task(pool.count(counting(gate), load)) for gate, load in zip(gates, loads, strict=True)
    ]
    await gates[0].wait()
    await asyncio.wait(tasks[2:])  # there is no room for these
    assert [task.done() for task in tasks] == [False, False, True, True]
    own = Gate(size=MOST // 4)
    await pool.count(counting(own), replace(own.load, client="client 0"))  # over the share of one client
    assert await pool.run(short(), SHORT, in_s(10))
    for gate in gates:
        gate.released.set()
    await asyncio.gather(*tasks)
    assert [gate.pieces > 0 for gate in gates] == [True, True, False, False]
    assert not observer.reasons


async def test_a_count_that_nobody_waits_for_ends(pool: TokenizerThreads) -> None:
    gate, task = await begin_count(pool)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    gate.released.set()
    assert await pool.run(short(), SHORT, math.inf)
    assert gate.pieces <= 1


async def test_closing_ends_a_count_without_an_error(pool: TokenizerThreads) -> None:
    gate, task = await begin_count(pool)
    pool.close()
    await task
    gate.released.set()
    await pool.count(counting(Gate()), gate.load)
