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
    assert pace.text_s(PAIR_TOKENS) == pytest.approx(2 * 0.001 * PAIR_TOKENS)
    assert pace.text_s(4 * PAIR_TOKENS) == pytest.approx(10 * pace.text_s(PAIR_TOKENS))


def test_measured_calls_replace_the_prediction() -> None:
    pace = Pace(CostModel(fixed_s=0.0, per_token_s=0.001), narrow=1)
    for _ in range(60):
        pace.measure([100] * 4, 1, 4.0)
    assert pace.call_s([100] * 4, 1) == pytest.approx(4.0, rel=0.01)
    assert pace.text_s(100) == pytest.approx(1.0, rel=0.01)


def test_one_slow_call_moves_the_prediction_a_tenth_of_the_way() -> None:
    pace = Pace(CostModel(fixed_s=0.0, per_token_s=0.001), narrow=1)
    before = pace.call_s([100], 1)
    pace.measure([100], 1, 11 * before)
    assert pace.call_s([100], 1) == pytest.approx(before * (MEMORY + (1 - MEMORY) * 11))


def test_a_length_never_measured_takes_the_speed_of_the_nearest_shorter_one() -> None:
    pace = Pace(CostModel(fixed_s=0.0, per_token_s=0.001), narrow=1)
    long_before, short_before = pace.text_s(4_000), pace.text_s(10)
    for _ in range(100):
        pace.measure([100], 1, 3 * 0.001 * 100 * (1 + 100 / PAIR_TOKENS))
    assert pace.text_s(4_000) == pytest.approx(3 * long_before, rel=0.01)
    assert pace.text_s(10) == pytest.approx(3 * short_before, rel=0.01)
    for _ in range(100):
        pace.measure([4_000], 1, long_before / 4)
    assert pace.text_s(4_000) == pytest.approx(long_before / 4, rel=0.01)
    assert pace.text_s(100) == pytest.approx(3 * 0.001 * 100 * (1 + 100 / PAIR_TOKENS), rel=0.01)


def test_wide_calls_say_nothing_about_narrow_ones() -> None:
    pace = Pace(CostModel(fixed_s=0.0, per_token_s=0.001), narrow=1)
    before = pace.text_s(100)
    for _ in range(50):
        pace.measure([100], 2, 10.0)
    assert pace.text_s(100) == before
    assert pace.call_s([100], 2) == pytest.approx(10.0, rel=0.01)
