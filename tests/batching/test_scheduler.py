"""One object decides who is admitted, what is computed next and on how many cores, on a given clock."""

import math

import numpy as np
import pytest

from vecmill.batching.scheduler import TRY_SHARE, Ask, Cores, Scheduler
from vecmill.config import MillConfig, QueueConfig
from vecmill.errors import DeadlineExceeded, InferenceFailed, QueueFull, RequestTooLarge
from vecmill.requests import Priority
from vecmill.values.batch import TokenSequence
from vecmill.values.engine_plan import CostModel

ROW = np.ones((1, 2), np.float32)
PER_TOKEN_S = 1e-3
IDLE = Cores(free=2, total=2, long_cores=0, lanes=2, long_lanes=0)
ONE_FREE = Cores(free=1, total=2, long_cores=0, lanes=2, long_lanes=0)


def scheduler(config: MillConfig | None = None) -> Scheduler:
    config = config or MillConfig(queue=QueueConfig(timeout_s=30.0))
    return Scheduler(config, CostModel(0.0, PER_TOKEN_S), lanes=2, widths=(1, 2))


def texts(*numbers: int, length: int = 10) -> list[TokenSequence]:
    return [TokenSequence.of([number] * length) for number in numbers]


def test_a_request_is_admitted_taken_and_finished() -> None:
    it = scheduler()
    request = it.admit(texts(1, 2), Ask(), 0.0)
    batch = it.take(IDLE, 1.0, was_idle=True)
    assert batch is not None
    assert (batch.width, batch.cores, batch.waits_s) == (2, 2, (1.0, 1.0))
    assert it.take(ONE_FREE, 1.0, was_idle=True) is None
    assert it.finish(batch.jobs, [ROW, ROW], 3.0) == [request]
    assert (request.started_at, request.finished_at, request.error) == (1.0, 3.0, None)
    assert not it.has_open_texts


def test_a_failure_ends_the_request_that_needs_the_text() -> None:
    it = scheduler()
    first, second = (it.admit(texts(number), Ask(), 0.0) for number in (1, 2))
    batch = it.take(ONE_FREE, 0.0, was_idle=False)
    assert batch is not None
    error = InferenceFailed("scripted")
    assert it.finish(batch.jobs, [error, ROW], 1.0) == [first, second]
    assert (first.error, second.error) == (error, None)


def test_what_does_not_fit_is_refused_with_a_time_or_for_good() -> None:
    it = scheduler(MillConfig(queue=QueueConfig(max_queue_texts=2)))
    it.admit(texts(1, 2), Ask(client="a"), 0.0)
    with pytest.raises(QueueFull) as full:
        it.admit(texts(3), Ask(client="b"), 0.0)
    assert full.value.retry_after_s > 0
    with pytest.raises(RequestTooLarge):
        it.admit(texts(3, 4, 5), Ask(client="b"), 0.0)
    assert it.queue.snapshot().admitted == 2


def test_a_request_that_seems_too_late_is_tried_on_an_idle_machine_now_and_then() -> None:
    it, limit_s = scheduler(), 0.01
    sequences = texts(1, length=100)  # a tenth of a second
    for now, is_tried in ((0.0, False), (0.5 * limit_s / TRY_SHARE, False), (limit_s / TRY_SHARE, True)):
        ask = Ask(timeout_s=limit_s)
        if not is_tried:
            with pytest.raises(DeadlineExceeded):
                it.admit(sequences, ask, now)
            continue
        it.admit(sequences, ask, now)
        batch = it.take(IDLE, now, was_idle=True)
        assert batch is not None
        it.finish(batch.jobs, [ROW], now)
        it.admit(sequences, ask, now)  # the prediction was wrong, so the next one is tried at once


def test_a_try_that_fails_does_not_show_that_the_prediction_is_wrong() -> None:
    it, ask, sequences = scheduler(), Ask(timeout_s=0.01), texts(1, length=100)
    with pytest.raises(DeadlineExceeded):
        it.admit(sequences, ask, 0.0)
    tried = it.admit(sequences, ask, 1.0)
    batch = it.take(IDLE, 1.0, was_idle=True)
    assert batch is not None
    assert it.fail(batch.jobs, InferenceFailed("scripted"), 1.0) == [tried]
    with pytest.raises(DeadlineExceeded):
        it.admit(sequences, ask, 1.0)


@pytest.mark.promise("deadlines-kept")
def test_a_request_whose_time_is_over_is_not_even_tried() -> None:
    it = scheduler()
    for now in (1.0, 1_000.0):
        with pytest.raises(DeadlineExceeded):
            it.admit(texts(1), Ask(timeout_s=1.0, accepted_at=now - 1.0), now)


@pytest.mark.promise("deadlines-kept")
@pytest.mark.parametrize(
    ("ask", "limit_s", "may_wait"),
    [
        (Ask(), 30.04, True),  # 30 s, and four times the 10 ms that it takes
        (Ask(timeout_s=5.0), 5.0, False),
        (Ask(timeout_s=1_000.0), 30.04, True),
        (Ask(accepted_at=99.0), 29.04, True),
        (Ask(timeout_s=5.0, accepted_at=99.0), 4.0, False),
        (Ask(Priority.BACKGROUND), math.inf, True),
        (Ask(Priority.BACKGROUND, timeout_s=5.0), 5.0, False),
    ],
)
def test_a_time_limit_counts_from_the_acceptance_and_can_only_be_shortened(
    ask: Ask, limit_s: float, may_wait: bool
) -> None:
    terms = scheduler().admit(texts(1), ask, 100.0).terms
    assert terms.deadline - 100.0 == pytest.approx(limit_s, abs=1e-3)
    assert terms.may_wait is may_wait


def test_requests_end_early_once() -> None:
    it = scheduler()
    cancelled = it.admit(texts(1), Ask(), 0.0)
    expired = it.admit(texts(2), Ask(timeout_s=5.0), 0.0)
    failed = it.admit(texts(3), Ask(Priority.BACKGROUND), 0.0)
    it.queue.cancel(cancelled, 1.0)
    assert it.queue.next_deadline() is not None
    assert it.queue.expire(5.0) == [expired]
    assert it.queue.fail_all(InferenceFailed("scripted"), 6.0) == [failed]
    assert not it.queue.work_texts
    counts = it.queue.snapshot()
    assert (counts.cancelled, counts.expired, counts.failed, counts.open) == (1, 1, 1, 0)


@pytest.mark.parametrize(("cores", "may_take"), [(IDLE, True), (Cores(1, 2, 1, 2, 1), False)])
def test_a_long_text_leaves_a_lane_and_a_core_to_others(cores: Cores, may_take: bool) -> None:
    it = scheduler()
    it.admit(texts(1, length=5_000), Ask(), 0.0)
    assert it.may_take(cores) is may_take
    batch = it.take(cores, 0.0, was_idle=False)
    assert (batch is not None) is may_take
    if batch is not None:
        assert (batch.width, batch.cores, batch.has_long_text) == (2, 1, True)


@pytest.mark.parametrize(
    ("free", "was_idle", "waiting", "width"),
    [
        (8, True, 1, 8),  # alone
        (8, False, 1, 4),  # half of the cores stay free
        (4, True, 1, 4),
        (3, True, 1, 1),
        (8, False, 2, 4),
        (8, False, 16, 1),  # enough for all cores
    ],
)
def test_a_call_has_the_width_that_keeps_most_cores_busy(
    free: int, was_idle: bool, waiting: int, width: int
) -> None:
    it = Scheduler(MillConfig(), CostModel(0.0, 1e-5), lanes=8, widths=(1, 4, 8))
    it.admit(texts(*range(waiting), length=500), Ask(), 0.0)
    cores = Cores(free=free, total=8, long_cores=0, lanes=8, long_lanes=0)
    batch = it.take(cores, 0.0, was_idle=was_idle)
    assert batch is not None
    assert (batch.width, batch.cores) == (width, width)


@pytest.mark.parametrize(("waiting", "width"), [(1, 16), (4, 16), (70, 1)])
def test_long_texts_share_the_cores_in_wide_calls(waiting: int, width: int) -> None:
    it = Scheduler(MillConfig(), CostModel(0.0, 1e-2), lanes=64, widths=(1, 8, 16))
    it.admit(texts(*range(waiting), length=500), Ask(), 0.0)
    batch = it.take(Cores(free=64, total=64, long_cores=0, lanes=64, long_lanes=0), 0.0, was_idle=False)
    assert batch is not None
    assert batch.has_long_text
    assert (batch.width, batch.cores) == (width, max(1, width - 1))
