"""Factors between activations and weights that make both easier to round.

x @ w.T is (x / f) @ (w * f).T for any factors f of the inputs. A large input with small weights is
divided, a small one with large weights multiplied, until both take their share of the error.

Source: Xiao et al., "SmoothQuant", ICML 2023, equation 4.
"""

import numpy as np

from vecmill.types import FloatArray

_STRENGTH = 0.65  # 0 leaves activations as they are, 1 makes all inputs equally large
_UNEVEN = 4.0  # inputs whose largest is less than this many times the middle one are left alone
_SMALLEST = 1e-5


def smoothing_factors(largest: FloatArray, weight: FloatArray) -> FloatArray | None:
    """Factors (inputs,), of geometric mean 1, or `None` where the inputs are even already.

    `largest` (inputs,) is the largest magnitude of each input, `weight` is (outputs, inputs).
    """
    if largest.max() < _UNEVEN * np.median(largest):
        return None
    inputs = np.maximum(largest, _SMALLEST).astype(np.float64)
    weights = np.maximum(np.abs(weight).max(axis=0), _SMALLEST).astype(np.float64)
    logarithms = _STRENGTH * np.log(inputs) - (1 - _STRENGTH) * np.log(weights)
    factors: FloatArray = np.exp(logarithms - logarithms.mean()).astype(np.float32)
    return factors
