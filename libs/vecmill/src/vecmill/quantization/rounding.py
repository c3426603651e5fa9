"""Rounding weights to 8 bits with what they are multiplied with in mind.

Rounding each weight to its nearest step is not what changes a layer's outputs least. GPTQ rounds the
inputs' weights one after another, and after each moves those still to come by what makes up for the
error, as far as inputs go together.

Source: Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
Transformers", ICLR 2023, sections 3.2-3.3.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vecmill.types import FloatArray

_LARGEST = 127
_DAMPING = 0.01  # of the mean square of the inputs, so that the inverse exists
_BLOCK = 128  # inputs that are worked off before the rest of the matrix is moved


@dataclass(frozen=True, slots=True)
class RoundedMatrix:
    """`values` (outputs, inputs) int8 and `scales` (outputs,) float32: the weight is their product."""

    values: npt.NDArray[np.int8]
    scales: FloatArray


def round_matrix(weight: FloatArray, products: FloatArray) -> RoundedMatrix:
    """Round `weight` (outputs, inputs).

    `products` (inputs, inputs) is the sum of x x' over calibration rows.
    """
    scales = np.abs(weight).max(axis=1) / _LARGEST
    scales[scales == 0] = 1
    # Transposed: what is worked on together lies together.
    left = weight.T.astype(np.float64)
    inverse = _invert(products)
    values = np.empty(left.shape, np.int8)
    for start in range(0, len(left), _BLOCK):
        block = slice(start, min(start + _BLOCK, len(left)))
        errors = _round_block(left[block], inverse[block, block], scales, values[block])
        left[block.stop :] -= inverse[block, block.stop :].T @ errors
    return RoundedMatrix(np.ascontiguousarray(values.T), scales.astype(np.float32))


def _round_block(
    left: npt.NDArray[np.float64],
    inverse: npt.NDArray[np.float64],
    scales: FloatArray,
    values: npt.NDArray[np.int8],
) -> npt.NDArray[np.float64]:
    """Round the inputs of a block into `values`; the errors that others have to make up for."""
    errors = np.empty_like(left)
    for place in range(len(left)):
        rounded = np.clip(np.round(left[place] / scales), -_LARGEST, _LARGEST)
        values[place] = rounded
        errors[place] = (left[place] - rounded * scales) / inverse[place, place]
        left[place + 1 :] -= np.outer(inverse[place, place + 1 :], errors[place])
    return errors


def _invert(products: FloatArray) -> npt.NDArray[np.float64]:
    """The upper Cholesky factor of the inverse of `products`, damped."""
    damped = products.astype(np.float64)
    mean = float(np.diagonal(damped).mean())
    np.fill_diagonal(damped, np.diagonal(damped) + (_DAMPING * mean or 1.0))
    factor: npt.NDArray[np.float64] = np.linalg.cholesky(np.linalg.inv(damped)).T
    return factor
