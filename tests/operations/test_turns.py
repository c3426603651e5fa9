"""Waiting work on texts takes turns: short work first, and long work is never left out. Time is a number."""

import math
import random
from collections.abc import Iterator

from vecmill.operations.turns import AGE_S, LONG_PIECE, TextWork, Turns
from vecmill.tokenization.pieces import Slices

SLICE = 1_000


def work(size: int = 0) -> Slices[None]:
    while size > 0:
        yield min(SLICE, size)
        size -= SLICE


def job(size: int, deadline: float = math.inf, *, announced: int | None = None) -> TextWork:
    return TextWork(work(size), size, deadline, announced)


def order(turns: Turns, now: float = 0.0, *, takes_long: bool = True) -> Iterator[TextWork]:
    while (taken := turns.take(now, takes_long=takes_long)) is not None:
        yield taken


def test_the_shortest_goes_first_and_equals_by_deadline_and_arrival() -> None:
    turns = Turns()
    jobs = [job(5_000), job(100), job(120, deadline=1.0), job(90), job(40), job(6_000, deadline=2.0)]
    for each in jobs:
        turns.add(each, 0.0)
    assert [jobs.index(each) for each in order(turns)] == [4, 2, 1, 3, 5, 0]


def test_work_that_waited_long_gets_every_second_turn() -> None:
    turns, long = Turns(), job(10**6)
    turns.add(long, 0.0)
    turns.add(job(10), 0.0)
    taken = []
    for turn in range(1, 7):
        now = turn * AGE_S
        chosen = turns.take(now, takes_long=True)
        taken.append(chosen is long)
        if chosen is long:
            turns.put_back(long, now)
        else:
            turns.add(job(10), now)
    assert taken == [True, False, True, False, True, False]


def test_work_with_a_long_piece_waits_for_a_thread_that_takes_such() -> None:
    turns = Turns()
    long, short = job(10, announced=LONG_PIECE + 1), job(20, announced=LONG_PIECE)
    for each in (long, short):
        turns.add(each, 0.0)
    assert list(order(turns, 10.0, takes_long=False)) == [short]
    assert list(order(turns, 10.0)) == [long]


def test_dropped_work_is_closed_and_gets_no_turn() -> None:
    turns, waiting, running = Turns(), job(10), job(20)
    next(waiting.work)
    turns.add(waiting, 0.0)
    turns.drop(waiting)
    turns.drop(waiting)
    assert waiting.work.gi_frame is None  # type: ignore[attr-defined]
    assert turns.take(0.0, takes_long=True) is None
    turns.add(running, 0.0)
    assert turns.take(0.0, takes_long=True) is running
    turns.drop(running)
    assert running.is_dropped
    assert running.work.gi_frame is not None  # type: ignore[attr-defined]
    assert turns.work == 0


def test_jobs_that_no_longer_wait_do_not_add_up() -> None:
    """Under a stream of short jobs the turns never come to the places of long jobs."""
    turns, short = Turns(), [job(10) for _ in range(100)]
    for each in short:
        turns.add(each, 0.0)
    for _ in range(10_000):
        long = job(10**6)
        turns.add(long, 0.0)
        turns.drop(long)
    assert len(turns._short) < 1_000
    assert list(order(turns)) == short


def test_the_work_before_a_job_is_that_of_its_size_and_below() -> None:
    turns = Turns()
    small, large = job(100), job(100_000)
    for each in (small, large):
        turns.add(each, 0.0)
    assert (turns.work_before(50), turns.work_before(5_000), turns.work_before(10**6)) == (0, 100, 100_100)
    turns.spend(small, 60)
    turns.spend(small, 60)
    turns.spend(large, 1_000)
    assert (turns.work_before(5_000), turns.work) == (0, 99_000)


def test_all_work_is_done_and_none_waits_long() -> None:
    """One thread, random arrivals: short work overtakes, and long work advances under any load."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    turns, pace, now, arrives = Turns(), 1e6, 0.0, 0.0
    pending: dict[TextWork, tuple[float, int]] = {}
    long, finished = job(3_000_000), {}
    turns.add(long, 0.0)
    pending[long] = (0.0, 3_000_000)
    while pending:
        if arrives <= now < 3.0:
            size = draw.choice([1_100, 2_000, 20_000])
            new = job(size)
            turns.add(new, now)
            pending[new] = (now, size)
            arrives = now + draw.expovariate(1 / (size / pace / 0.9))  # 90% of the thread
        taken = turns.take(now, takes_long=True)
        if taken is None:
            now = arrives
            continue
        try:
            done = next(taken.work)
        except StopIteration:
            finished[taken] = (now - pending[taken][0], pending.pop(taken)[1])
            turns.drop(taken)
            continue
        now += done / pace
        turns.spend(taken, done)
        turns.put_back(taken, now)
    assert turns.work == 0
    assert max(waited for waited, size in finished.values() if size <= 2_000) < 0.1
    assert finished[long][0] < 10
