"""Batches: oldest first with its neighbours in length, priorities by weight, nobody starves."""

import pytest

from vecmill.batching.policy import Policy
from vecmill.batching.queue import Queue
from vecmill.config import BatchConfig, QueueConfig
from vecmill.requests import Priority
from vecmill.values.batch import TokenSequence


class WaitList:
    """A queue and a policy, driven by lengths."""

    def __init__(self, config: BatchConfig) -> None:
        self.queue = Queue(QueueConfig())
        self.policy = Policy(config)
        self.number = 0

    def admit(self, *lengths: int, priority: Priority = Priority.INTERACTIVE, now: float = 0.0) -> None:
        for length in lengths:
            self.number += 1
            sequence = TokenSequence.of([self.number] * length)
            self.queue.admit([sequence], priority=priority, now=now, deadline=1e9)

    def take(self, *, lanes: int = 1, now: float = 0.0) -> list[int]:
        jobs = self.policy.choose(self.queue, lanes=lanes, now=now)
        self.queue.take(jobs, now)
        return [job.tokens for job in jobs]


def test_the_oldest_text_brings_its_neighbours_in_length() -> None:
    line = WaitList(BatchConfig(max_batch_tokens=365))
    line.admit(100, 10, 300, 98, 103, 60, 200)
    assert line.take() == [100, 98, 103, 60]


def test_a_text_longer_than_the_budget_runs_alone() -> None:
    line = WaitList(BatchConfig(max_batch_tokens=200))
    line.admit(500, 480)
    assert line.take() == [500]


def test_a_long_text_does_not_pad_many_short_ones() -> None:
    line = WaitList(BatchConfig(max_batch_tokens=512))
    line.admit(256, *[10] * 60)
    assert line.take() == [256, 10, 10, 10]
    assert sum(line.take()) == 510


def test_what_waits_is_divided_among_the_lanes() -> None:
    line = WaitList(BatchConfig(max_batch_tokens=512))
    line.admit(*[40] * 12)
    assert sum(line.take(lanes=2)) == 240


def test_batches_are_not_split_below_what_a_call_is_worth() -> None:
    line = WaitList(BatchConfig(max_batch_tokens=512))
    line.admit(*[32] * 4)
    assert sum(line.take(lanes=4)) == 128


@pytest.mark.parametrize("weight", [1, 4])
def test_shares_get_tokens_by_weight(weight: int) -> None:
    line = WaitList(BatchConfig(max_batch_tokens=128, interactive_weight=weight))
    line.admit(*[64] * 400)
    line.admit(*[64] * 400, priority=Priority.BULK)
    interactive_before = line.queue.wait_lists[Priority.INTERACTIVE].tokens
    bulk_before = line.queue.wait_lists[Priority.BULK].tokens
    for _ in range(100):
        line.take()
    interactive = interactive_before - line.queue.wait_lists[Priority.INTERACTIVE].tokens
    bulk = bulk_before - line.queue.wait_lists[Priority.BULK].tokens
    assert interactive / bulk == pytest.approx(weight, rel=0.1)


def test_a_share_that_was_idle_has_no_credit() -> None:
    line = WaitList(BatchConfig(max_batch_tokens=128, interactive_weight=1))
    line.admit(*[128] * 200, priority=Priority.BULK)
    for _ in range(100):
        line.take()
    line.admit(*[127] * 50)
    turns = [line.take()[0] for _ in range(20)]
    assert 8 <= turns.count(127) <= 12


@pytest.mark.promise("fair-keys", "no-starvation")
def test_a_single_text_does_not_wait_for_a_bulk_request() -> None:
    line = WaitList(BatchConfig(max_batch_tokens=128))
    line.admit(*[64] * 2_000, priority=Priority.BULK)
    for _ in range(10):
        line.take()
    line.admit(20)
    assert 20 in [line.take()[0] for _ in range(2)]


def test_patient_work_never_keeps_others_waiting_because_it_is_old() -> None:
    line = WaitList(BatchConfig(max_batch_tokens=128, age_cap_s=2.0, interactive_weight=4))
    line.admit(*[64] * 2_000, priority=Priority.BACKGROUND, now=0.0)
    line.take(now=0.0)
    line.admit(20, now=10.0)
    line.admit(*[30] * 20, priority=Priority.BULK, now=10.0)
    taken = [line.take(now=10.0)[0] for _ in range(3)]
    assert {20, 30} < set(taken)


def test_patient_work_has_its_part_however_much_else_is_old() -> None:
    line = WaitList(BatchConfig(max_batch_tokens=128, age_cap_s=2.0, interactive_weight=4))
    line.admit(*[64] * 400, priority=Priority.BACKGROUND, now=0.0)
    line.admit(*[64] * 400, now=0.0)
    before = line.queue.wait_lists[Priority.BACKGROUND].tokens
    for _ in range(100):
        line.take(now=10.0)
    assert (before - line.queue.wait_lists[Priority.BACKGROUND].tokens) / (100 * 128) == pytest.approx(
        1 / 5, abs=0.02
    )


@pytest.mark.promise("no-starvation", "fair-keys")
def test_a_request_of_thousands_of_texts_that_all_grew_old_lets_others_pass() -> None:
    line = WaitList(BatchConfig(max_batch_tokens=128, age_cap_s=2.0, interactive_weight=4))
    line.admit(*[64] * 2_000, priority=Priority.BULK, now=0.0)
    line.take(now=10.0)
    for now in range(11, 60):
        line.admit(20, now=now)
        assert 20 in [line.take(now=now)[0] for _ in range(2)]


@pytest.mark.promise("no-starvation")
def test_age_beats_weight() -> None:
    line = WaitList(BatchConfig(max_batch_tokens=128, age_cap_s=2.0, interactive_weight=1_000))
    line.admit(50, priority=Priority.BULK, now=0.0)
    for step in range(1, 100):
        now = step * 0.1
        line.admit(*[128] * 3, now=now)
        if line.take(now=now) == [50]:
            assert now <= 2.1
            return
    raise AssertionError("the bulk text starved")
