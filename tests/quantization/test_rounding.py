"""Weights of 8 bits lose little of what they compute, and no more than the published method does."""

import numpy as np
import numpy.typing as npt
import pytest

from vecmill.quantization.rounding import RoundedMatrix, round_matrix, smoothing_factors
from vecmill.values.aliases import FloatArray

SEED = 3


def correlated_rows(count: int, inputs: int) -> FloatArray:
    """Rows whose inputs go together, as those of real layers do, one of them far larger than the rest."""
    random = np.random.default_rng(SEED)
    hidden = random.standard_normal((count, max(2, inputs // 8)))
    rows = hidden @ random.standard_normal((hidden.shape[1], inputs))
    rows += 0.3 * random.standard_normal(rows.shape)
    rows[:, 0] *= 20
    return rows.astype(np.float32)


def weight_of(outputs: int, inputs: int) -> FloatArray:
    return np.random.default_rng(SEED + 1).standard_normal((outputs, inputs)).astype(np.float32)


def nearest(weight: FloatArray) -> RoundedMatrix:
    """Each weight at its nearest step."""
    scales = np.abs(weight).max(axis=1) / 127
    return RoundedMatrix(np.rint(weight / scales[:, None]).astype(np.int8), scales)


def as_published(weight: FloatArray, products: FloatArray) -> npt.NDArray[np.int8]:
    """The method as its authors write it down: one input at a time, in double precision."""
    left = weight.astype(np.float64)
    scales = np.abs(weight).max(axis=1) / 127
    damped = products.astype(np.float64)
    damped += 0.01 * np.diagonal(damped).mean() * np.eye(len(damped))
    upper = np.linalg.cholesky(np.linalg.inv(damped)).T
    values = np.empty(left.shape, np.int8)
    for place in range(left.shape[1]):
        rounded = np.clip(np.rint(left[:, place] / scales), -127, 127)
        values[:, place] = rounded
        error = (left[:, place] - rounded * scales) / upper[place, place]
        left[:, place:] -= np.outer(error, upper[place, place:])
    return values


def loss(rounded: RoundedMatrix, weight: FloatArray, rows: FloatArray) -> float:
    return float(np.linalg.norm(rows @ (rounded.values * rounded.scales[:, None] - weight).T))


def test_it_loses_less_than_rounding_to_the_nearest_step() -> None:
    rows, weight = correlated_rows(2000, 192), weight_of(96, 192)
    assert loss(round_matrix(weight, rows.T @ rows), weight, rows) < 0.6 * loss(nearest(weight), weight, rows)


# Less than a block, whole blocks, and a rest.
@pytest.mark.parametrize("inputs", [48, 128, 300])
def test_it_is_the_published_method(inputs: int) -> None:
    rows, weight = correlated_rows(2000, inputs), weight_of(64, inputs)
    products = rows.T @ rows
    found = round_matrix(weight, products).values.astype(int)
    off = np.abs(found - as_published(weight, products))
    # Here and there a weight lies so near to the middle between two steps that single precision decides.
    assert off.max() <= 1
    assert (off > 0).mean() < 0.01


def test_inputs_that_have_nothing_to_do_with_each_other_are_rounded_to_the_nearest_step() -> None:
    weight = weight_of(64, 160)
    np.testing.assert_array_equal(
        round_matrix(weight, np.eye(160, dtype=np.float32)).values, nearest(weight).values
    )


def test_what_is_never_seen_and_what_is_nothing_stay_finite() -> None:
    rows, weight = correlated_rows(500, 64), weight_of(64, 64)
    rows[:, 7] = 0
    weight[5] = 0
    for products in (rows.T @ rows, np.zeros((64, 64), np.float32)):
        rounded = round_matrix(weight, products)
        assert np.isfinite(rounded.scales).all()
        assert not rounded.values[5].any()
        restored = rounded.values * rounded.scales[:, None]
        assert np.abs(restored - weight).max() < 0.2


def test_fewer_rows_than_inputs_are_enough() -> None:
    rows, weight = correlated_rows(50, 256), weight_of(64, 256)
    assert loss(round_matrix(weight, rows.T @ rows), weight, rows) < loss(nearest(weight), weight, rows)


SMOOTHING_SEED = 5


def test_large_inputs_get_smaller_and_the_product_stays() -> None:
    random = np.random.default_rng(SMOOTHING_SEED)
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
