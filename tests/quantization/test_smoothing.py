"""Smoothing moves size from inputs to weights, and changes no product."""

import numpy as np

from vecmill.quantization.smoothing import smoothing_factors

SEED = 5


def test_large_inputs_get_smaller_and_the_product_stays() -> None:
    random = np.random.default_rng(SEED)
    rows = random.standard_normal((200, 64)).astype(np.float32)
    rows[:, 3] *= 50
    weight = random.standard_normal((32, 64)).astype(np.float32)
    factors = smoothing_factors(np.abs(rows).max(axis=0), weight)
    assert factors is not None
    smooth = rows / factors
    np.testing.assert_allclose(smooth @ (weight * factors).T, rows @ weight.T, rtol=1e-3, atol=1e-3)
    assert np.abs(smooth).max() < np.abs(rows).max() / 4
    np.testing.assert_allclose(np.exp(np.log(factors).mean()), 1, rtol=1e-5)


def test_even_inputs_are_left_alone() -> None:
    assert smoothing_factors(np.linspace(1, 2, 64, dtype=np.float32), np.ones((32, 64), np.float32)) is None


def test_inputs_and_weights_that_are_nothing_have_factors() -> None:
    largest = np.ones(64, np.float32)
    largest[0], largest[1] = 100, 0
    weight = np.ones((32, 64), np.float32)
    weight[:, 2] = 0
    factors = smoothing_factors(largest, weight)
    assert factors is not None
    assert np.isfinite(factors).all()
    assert (factors > 0).all()
