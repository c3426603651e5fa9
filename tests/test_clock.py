"""Time in which the process stood still does not count."""

import random

import pytest

from vecmill.values.clock import GRACE_S, RunningClock


class Time:
    """A clock that moves only when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


def test_while_ticks_come_in_time_all_time_counts(time: Time) -> None:
    clock = RunningClock(time)
    began = clock()
    for _ in range(50):
        clock.expect_tick(time.now + 1.0)
        time.now += 1.0 + GRACE_S / 2
        clock.tick()
    now, stood_still_s = clock.read()
    assert stood_still_s == 0.0
    assert now - began == pytest.approx(50 * (1.0 + GRACE_S / 2))


@pytest.mark.parametrize("stopped_s", [5.0, 35.0, 1e6])
def test_a_stop_counts_for_the_time_to_the_tick_and_the_grace(time: Time, stopped_s: float) -> None:
    clock = RunningClock(time)
    clock.expect_tick(time.now + 1.0)
    began = clock()
    time.now += stopped_s
    before_the_tick = clock()
    clock.tick()
    assert before_the_tick - began == clock() - began == pytest.approx(1.0 + GRACE_S)
    now, stood_still_s = clock.read()
    assert now == clock()
    assert stood_still_s == pytest.approx(stopped_s - 1.0 - GRACE_S)
    time.now += 7.0
    assert clock() - began == pytest.approx(8.0 + GRACE_S)


def test_without_a_planned_tick_all_time_counts(time: Time) -> None:
    clock = RunningClock(time)
    began = clock()
    clock.expect_tick(time.now + 1.0)
    clock.expect_tick(None)
    time.now += 1e6
    clock.tick()
    assert clock() - began == pytest.approx(1e6)


def test_the_clock_never_goes_back_and_never_runs_faster(time: Time) -> None:
    dice = random.Random(7)
    clock = RunningClock(time)
    last, last_now = clock(), time.now
    for _ in range(10_000):
        match dice.randrange(4):
            case 0:
                clock.expect_tick(dice.choice([None, time.now + dice.random()]))
            case 1:
                clock.tick()
            case _:
                time.now += dice.choice([0.0, 0.01, 1.0, 100.0]) * dice.random()
        assert 0.0 <= clock() - last <= time.now - last_now + 1e-6
        last, last_now = clock(), time.now
