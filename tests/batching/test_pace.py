"""The predicted time of calls follows what is measured, for each width and length apart."""

import pytest

from vecmill.batching.pace import MEMORY, PAIR_TOKENS, Pace
from vecmill.values.engine_info import CostModel


def test_before_any_call_the_warm_up_decides() -> None:
    pace = Pace(CostModel(fixed_s=0.01, per_token_s=0.001), narrow=1)
    assert pace.call_s([10, 20], 1) == pytest.approx(0.01 + 0.03, rel=0.02)
    assert pace.call_s([10, 20], 2) == pytest.approx(0.02, rel=0.02)


def test_a_long_text_costs_more_than_its_tokens() -> None:
    pace = Pace(CostModel(fixed_s=0.0, per_token_s=0.001), narrow=1)
    assert pace.text_cost_s(PAIR_TOKENS) == pytest.approx(2 * 0.001 * PAIR_TOKENS)
    assert pace.text_cost_s(4 * PAIR_TOKENS) == pytest.approx(10 * pace.text_cost_s(PAIR_TOKENS))


def slowed(pace: Pace, tokens: int) -> float:
    return pace.slowness * pace.text_cost_s(tokens)


def static(tokens: int) -> float:
    return 0.001 * tokens * (1 + tokens / PAIR_TOKENS)


def test_measured_calls_replace_the_prediction() -> None:
    pace = Pace(CostModel(fixed_s=0.0, per_token_s=0.001), narrow=1)
    for _ in range(100):
        pace.measure([100] * 4, 1, 4.0)
    assert pace.call_s([100] * 4, 1) == pytest.approx(4.0, rel=0.01)
    assert slowed(pace, 100) == pytest.approx(1.0, rel=0.01)


def test_one_slow_call_moves_the_prediction_little() -> None:
    pace = Pace(CostModel(fixed_s=0.0, per_token_s=0.001), narrow=1)
    before = pace.call_s([100], 1)
    pace.measure([100], 1, 11 * before)
    assert before * (MEMORY + (1 - MEMORY) * 11) <= pace.call_s([100], 1) <= 2.6 * before


def test_a_slower_machine_slows_all_lengths_and_leaves_the_count_of_work() -> None:
    pace = Pace(CostModel(fixed_s=0.0, per_token_s=0.001), narrow=1)
    for _ in range(200):
        pace.measure([100], 1, static(100))
        pace.measure([4_000], 1, static(4_000) / 4)
    long_s, short_s = slowed(pace, 4_000), slowed(pace, 100)
    work_s = pace.text_cost_s(4_000)
    for _ in range(30):
        pace.measure([100], 1, 2 * static(100))
    assert slowed(pace, 100) == pytest.approx(2 * short_s, rel=0.05)
    assert 1.4 * long_s < slowed(pace, 4_000) < 2.1 * long_s
    assert pace.text_cost_s(4_000) == work_s


def test_a_length_never_measured_takes_the_speed_of_the_nearest_shorter_one() -> None:
    pace = Pace(CostModel(fixed_s=0.0, per_token_s=0.001), narrow=1)
    for _ in range(200):
        pace.measure([100], 1, 3 * static(100))
    assert slowed(pace, 4_000) == pytest.approx(3 * static(4_000), rel=0.01)
    assert slowed(pace, 10) == pytest.approx(3 * static(10), rel=0.01)


def test_long_texts_are_learnt_apart() -> None:
    pace = Pace(CostModel(fixed_s=0.0, per_token_s=0.001), narrow=1)
    for _ in range(300):
        pace.measure([100], 1, 3 * static(100))
        pace.measure([4_000], 1, static(4_000) / 4)
    assert slowed(pace, 4_000) == pytest.approx(static(4_000) / 4, rel=0.1)
    assert slowed(pace, 100) == pytest.approx(3 * static(100), rel=0.1)


def test_wide_calls_say_nothing_about_narrow_ones() -> None:
    pace = Pace(CostModel(fixed_s=0.0, per_token_s=0.001), narrow=1)
    before = slowed(pace, 100)
    for _ in range(100):
        pace.measure([100], 2, 1.0)
    assert slowed(pace, 100) == before
    assert pace.call_s([100], 2) == pytest.approx(1.0, rel=0.01)


def test_an_engine_with_long_calls_follows_a_change_within_seconds() -> None:
    pace = Pace(CostModel(fixed_s=0.0, per_token_s=0.01), narrow=1)
    before, now = pace.call_s([100], 1), 0.0
    while pace.call_s([100], 1) < 1.7 * before:  # since the machine has become half as fast
        pace.measure([100], 1, 2 * before)
        now += 2 * before
    assert now <= 10.0
