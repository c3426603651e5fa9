"""Computes smoothing factors between activations and weights, which reduce the error of quantisation.

x @ w.T is (x / f) @ (w * f).T for any factors f of the inputs. Large inputs with small weights have a factor
above 1, and small inputs with large weights a factor below 1, so inputs and weights share the error.

Source: Xiao et al., "SmoothQuant", ICML 2023, equation 4.
"""

import numpy as np

from vecmill.values.aliases import FloatArray

_STRENGTH = 0.65  # 0 does not change activations, 1 makes all inputs equally large
_UNEVEN = 4.0  # without smoothing if the largest input is below this multiple of the median
_SMALLEST = 1e-5


def smoothing_factors(largest: FloatArray, weight: FloatArray) -> FloatArray | None:
    """Return factors (inputs,) of geometric mean 1, or `None` if the inputs are of similar size.

    `largest` (inputs,) is the largest magnitude of each input, `weight` is (outputs, inputs).
    """
    if largest.max() < _UNEVEN * np.median(largest):
        return None
    inputs = np.maximum(largest, _SMALLEST).astype(np.float64)
    weights = np.maximum(np.abs(weight).max(axis=0), _SMALLEST).astype(np.float64)
    logarithms = _STRENGTH * np.log(inputs) - (1 - _STRENGTH) * np.log(weights)
    factors: FloatArray = np.exp(logarithms - logarithms.mean()).astype(np.float32)
    return factors
