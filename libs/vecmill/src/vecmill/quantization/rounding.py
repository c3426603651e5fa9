"""Rounds weights to 8 bits with the least error in a layer's outputs (GPTQ).

Rounding each weight to its nearest step does not minimise the error of a layer's outputs. GPTQ rounds the
weights of one input after another, and after each input adjusts the remaining weights. Correlated inputs then
compensate for the error.

Source: Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
Transformers", ICLR 2023, sections 3.2-3.3.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vecmill.values.aliases import FloatArray

_LARGEST = 127
_DAMPING = 0.01  # of the mean square of the inputs, so that the inverse exists
_BLOCK = 128  # inputs that are rounded before the rest of the matrix is adjusted
_SMALL = 64  # a triangular matrix up to this size is inverted directly


@dataclass(frozen=True, slots=True)
class RoundedMatrix:
    """A quantised weight: `values` (outputs, inputs), int8, times `scales` (outputs,), float32."""

    values: npt.NDArray[np.int8]
    scales: FloatArray


def round_matrix(weight: FloatArray, products: FloatArray) -> RoundedMatrix:
    """Round `weight` (outputs, inputs), float32.

    `products` (inputs, inputs) is the sum of x x' over calibration rows. Raises `numpy.linalg.LinAlgError`
    if it is not finite.
    """
    scales = (np.abs(weight).max(axis=1) / _LARGEST).astype(np.float32)
    scales[scales == 0] = 1
    # Transposed, so that the weights of one input are contiguous.
    left = np.ascontiguousarray(weight.T, np.float32)
    inverse = _invert(products).astype(np.float32)
    values = np.empty(left.shape, np.int8)
    for start in range(0, len(left), _BLOCK):
        block = slice(start, min(start + _BLOCK, len(left)))
        errors = _round_block(left[block], inverse[block, block], scales, values[block])
        left[block.stop :] -= inverse[block, block.stop :].T @ errors
    return RoundedMatrix(np.ascontiguousarray(values.T), scales)


def _round_block(
    left: FloatArray, inverse: FloatArray, scales: FloatArray, values: npt.NDArray[np.int8]
) -> FloatArray:
    """Round the inputs of a block into `values`. Return the errors for which later inputs compensate."""
    errors = np.empty_like(left)
    for index, row in enumerate(left):
        # Compensate for the errors of earlier inputs of the block in one step.
        row -= inverse[:index, index] @ errors[:index]
        rounded = np.clip(np.rint(row / scales), -_LARGEST, _LARGEST)
        values[index] = rounded
        errors[index] = (row - rounded * scales) / inverse[index, index]
    return errors


def _invert(products: FloatArray) -> npt.NDArray[np.float64]:
    """Return the upper Cholesky factor of the inverse of the damped `products`."""
    damped = products.astype(np.float64)
    mean = float(np.diagonal(damped).mean())
    np.fill_diagonal(damped, np.diagonal(damped) + (_DAMPING * mean or 1.0))
    # In reversed order the lower factor is an upper factor, whose inverse is the result.
    return _invert_upper(np.linalg.cholesky(damped[::-1, ::-1])[::-1, ::-1].astype(np.float64))


def _invert_upper(matrix: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Invert an upper triangular matrix by halves: matrix products are faster than an inversion."""
    if len(matrix) <= _SMALL:
        return np.linalg.inv(matrix).astype(np.float64)
    half = len(matrix) // 2
    first, second = _invert_upper(matrix[:half, :half]), _invert_upper(matrix[half:, half:])
    whole = np.zeros_like(matrix)
    whole[:half, :half], whole[half:, half:] = first, second
    whole[:half, half:] = -first @ matrix[:half, half:] @ second
    return whole
