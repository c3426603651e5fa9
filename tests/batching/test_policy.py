"""Batches: the first request with its neighbours in length, priorities by weight, nobody starves."""

import pytest

from vecmill.batching.forecast import Forecast
from vecmill.batching.pace import Pace
from vecmill.batching.policy import Policy
from vecmill.batching.queue import Queue
from vecmill.batching.ticket import Terms
from vecmill.config import BatchConfig, MillConfig, QueueConfig
from vecmill.requests import Priority
from vecmill.values.batch import TokenSequence
from vecmill.values.engine_plan import CostModel

# With a millisecond for each token, a batch of 192 tokens makes this cost small.
FIXED_S = 192 * 0.03 * 1e-3


class Stage:
    """A queue and a policy, driven by lengths. A token takes a millisecond."""

    def __init__(self, config: BatchConfig) -> None:
        self.queue = Queue(QueueConfig(), lambda tokens: tokens * 1e-3)
        pace = Pace(CostModel(FIXED_S, 1e-3), narrow=1)
        forecast = Forecast(self.queue, MillConfig(batch=config), pace, cores=1)
        self.policy = Policy(config, forecast, pace)
        self.number = 0

    def admit(self, *lengths: int, priority: Priority = Priority.INTERACTIVE, deadline: float = 1e9) -> None:
        """Admit a request for each length."""
        for length in lengths:
            self.admit_whole(length, priority=priority, deadline=deadline)

    def admit_whole(
        self, *lengths: int, priority: Priority = Priority.INTERACTIVE, deadline: float = 1e9
    ) -> None:
        """Admit one request of all lengths."""
        sequences = []
        for length in lengths:
            self.number += 1
            sequences.append(TokenSequence.of([self.number] * length))
        self.queue.admit(sequences, Terms(priority, deadline), 0.0)

    def take(self, *, lanes: int = 1, now: float = 0.0, allow_long: bool = True) -> list[int]:
        jobs = self.policy.choose(self.queue, lanes=lanes, now=now, allow_long=allow_long)
        self.queue.take(jobs, now)
        return [job.tokens for job in jobs]


def test_the_oldest_text_brings_its_neighbours_in_length() -> None:
    line = Stage(BatchConfig(max_batch_tokens=365))
    line.admit(100, 10, 300, 98, 103, 60, 200)
    assert line.take() == [100, 98, 103, 60]


def test_a_text_longer_than_the_budget_runs_alone() -> None:
    line = Stage(BatchConfig(max_batch_tokens=200))
    line.admit(500, 480)
    assert line.take() == [500]


def test_a_long_text_does_not_pad_many_short_ones() -> None:
    line = Stage(BatchConfig(max_batch_tokens=512))
    line.admit(256, *[10] * 60)
    assert line.take() == [256, 10, 10, 10]
    assert sum(line.take()) == 510


def test_what_waits_is_divided_among_the_lanes() -> None:
    line = Stage(BatchConfig(max_batch_tokens=512))
    line.admit(*[40] * 12)
    assert sum(line.take(lanes=2)) == 240


def test_batches_are_not_split_below_what_a_call_is_worth() -> None:
    line = Stage(BatchConfig(max_batch_tokens=512))
    line.admit(*[32] * 4)
    assert sum(line.take(lanes=4)) == 128


@pytest.mark.parametrize("weight", [1, 4])
def test_shares_get_tokens_by_weight(weight: int) -> None:
    line = Stage(BatchConfig(max_batch_tokens=128, interactive_weight=weight))
    line.admit(*[64] * 400)
    line.admit(*[64] * 400, priority=Priority.BULK)
    interactive_before = line.queue.lines[Priority.INTERACTIVE].tokens
    bulk_before = line.queue.lines[Priority.BULK].tokens
    for _ in range(100):
        line.take()
    interactive = interactive_before - line.queue.lines[Priority.INTERACTIVE].tokens
    bulk = bulk_before - line.queue.lines[Priority.BULK].tokens
    assert interactive / bulk == pytest.approx(weight, rel=0.1)


def test_a_share_that_was_idle_has_no_credit() -> None:
    line = Stage(BatchConfig(max_batch_tokens=128, interactive_weight=1))
    line.admit(*[128] * 200, priority=Priority.BULK)
    for _ in range(100):
        line.take()
    line.admit(*[127] * 50)
    turns = [line.take()[0] for _ in range(20)]
    assert 8 <= turns.count(127) <= 12


@pytest.mark.promise("fair-keys", "no-starvation")
def test_a_single_text_does_not_wait_for_a_bulk_request() -> None:
    line = Stage(BatchConfig(max_batch_tokens=128))
    line.admit(*[64] * 2_000, priority=Priority.BULK)
    for _ in range(10):
        line.take()
    line.admit(20)
    assert 20 in [line.take()[0] for _ in range(2)]


@pytest.mark.promise("no-starvation")
def test_background_work_has_its_part_and_no_more() -> None:
    line = Stage(BatchConfig(max_batch_tokens=128, interactive_weight=4))
    line.admit(*[64] * 400, priority=Priority.BACKGROUND)
    line.admit(*[64] * 400)
    before = line.queue.lines[Priority.BACKGROUND].tokens
    for _ in range(100):
        line.take(now=10.0)
    taken = before - line.queue.lines[Priority.BACKGROUND].tokens
    assert taken / (100 * 128) == pytest.approx(1 / 5, abs=0.1)


def test_a_request_is_finished_before_the_next_one_of_its_client_begins() -> None:
    line = Stage(BatchConfig(max_batch_tokens=256))
    line.admit_whole(*[60, 20] * 20, priority=Priority.BULK)
    line.admit_whole(*[60, 20] * 20, priority=Priority.BULK)
    first = line.queue.lines[Priority.BULK].first()
    second = list(line.queue.lines[Priority.BULK].requests())[1]
    while first.waiting:
        assert len(second.waiting) == 40
        line.take()


def test_the_longest_texts_of_a_request_go_first_and_its_neighbours_fill_the_last_batch() -> None:
    line = Stage(BatchConfig(max_batch_tokens=200))
    line.admit_whole(30, 90, 100, priority=Priority.BULK)
    line.admit_whole(35, 80, 500, priority=Priority.BULK)
    assert line.take() == [100, 90]
    assert line.take() == [30, 35, 80]


@pytest.mark.promise("no-starvation")
def test_a_bulk_request_that_would_be_late_gets_every_other_batch() -> None:
    line = Stage(BatchConfig(max_batch_tokens=128, interactive_weight=1_000))
    line.admit_whole(*[64] * 20, priority=Priority.BULK, deadline=3.0)  # 1.28 s of work
    line.admit(*[100] * 100)
    before = [line.take(now=0.0)[0] for _ in range(10)]
    after = [line.take(now=2.0)[0] for _ in range(10)]
    assert before.count(64) <= 1
    assert after.count(64) == 5


def test_bulk_calls_are_short_while_interactive_requests_come_in() -> None:
    line = Stage(BatchConfig(max_batch_tokens=512))
    line.admit_whole(*[20] * 200, priority=Priority.BULK)
    assert sum(line.take(now=0.0)) == 500
    line.admit(10)
    assert line.take(now=1.0) == [10]
    assert sum(line.take(now=1.5)) == 60  # the least, since 25 ms are 25 tokens
    assert sum(line.take(now=3.0)) == 500


@pytest.mark.promise("no-starvation")
def test_long_texts_stay_in_line_while_they_may_not_run() -> None:
    line = Stage(BatchConfig(max_batch_tokens=128))
    line.admit(5_000, priority=Priority.BULK)
    line.admit_whole(4_000, 70, priority=Priority.BULK)
    assert line.take(allow_long=False) == [70]
    assert line.take(allow_long=False) == []
    assert sorted([line.take(), line.take()]) == [[4_000], [5_000]]
