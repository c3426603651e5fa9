"""Intervals and p-values against scipy, and against all exchanges of few queries."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from vecmill.evaluation.significance import estimate_mean, find_p_value


def test_an_interval_is_that_of_scipy() -> None:
    values = np.random.default_rng(0).random(200)
    found = estimate_mean(values, seed=1)
    expected = stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(2)
    ).confidence_interval
    assert found.mean == values.mean()
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.003)


def test_the_same_seed_gives_the_same_figures() -> None:
    values, others = np.random.default_rng(3).random((2, 50))
    assert estimate_mean(values, seed=4) == estimate_mean(values, seed=4)
    assert estimate_mean(values, seed=4) != estimate_mean(values, seed=5)
    assert find_p_value(values, others, seed=4) == find_p_value(values, others, seed=4)


@pytest.mark.parametrize("shift", [0.0, 0.15, 0.4])
def test_a_p_value_is_the_share_of_all_exchanges(shift: float) -> None:
    random = np.random.default_rng(6)
    values, others = random.random(10) + shift, random.random(10)
    differences = values - others
    sums = np.array(
        [
            sum(sign * each for sign, each in zip(signs, differences, strict=True))
            for signs in product((1, -1), repeat=10)
        ]
    )
    exact = np.mean(np.abs(sums) >= abs(differences.sum()) - 1e-9)
    assert find_p_value(values, others, swaps=50_000) == pytest.approx(exact, abs=0.01)


def test_equal_rows_differ_by_nothing() -> None:
    values = np.random.default_rng(7).random(30)
    assert find_p_value(values, values) == 1.0
