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
_SMALL = 64  # a triangle up to this size is inverted as any other matrix


@dataclass(frozen=True, slots=True)
class RoundedMatrix:
    """`values` (outputs, inputs) int8 and `scales` (outputs,) float32: the weight is their product."""

    values: npt.NDArray[np.int8]
    scales: FloatArray


def round_matrix(weight: FloatArray, products: FloatArray) -> RoundedMatrix:
    """Round `weight` (outputs, inputs), float32.

    `products` (inputs, inputs) is the sum of x x' over calibration rows. Raises `numpy.linalg.LinAlgError`
    if not all of it is finite.
    """
    scales = (np.abs(weight).max(axis=1) / _LARGEST).astype(np.float32)
    scales[scales == 0] = 1
    # Transposed: what is worked on together lies together.
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
    """Round the inputs of a block into `values`; the errors that others have to make up for."""
    errors = np.empty_like(left)
    for place, row in enumerate(left):
        # What earlier inputs ask of this one, now that it comes: each row is read and written once.
        row -= inverse[:place, place] @ errors[:place]
        rounded = np.clip(np.rint(row / scales), -_LARGEST, _LARGEST)
        values[place] = rounded
        errors[place] = (row - rounded * scales) / inverse[place, place]
    return errors


def _invert(products: FloatArray) -> npt.NDArray[np.float64]:
    """The upper Cholesky factor of the inverse of `products`, damped."""
    damped = products.astype(np.float64)
    mean = float(np.diagonal(damped).mean())
    np.fill_diagonal(damped, np.diagonal(damped) + (_DAMPING * mean or 1.0))
    # With the inputs in the other order the lower factor is an upper one, whose inverse is what we want.
    return _invert_upper(np.linalg.cholesky(damped[::-1, ::-1])[::-1, ::-1].astype(np.float64))


def _invert_upper(matrix: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The inverse of an upper triangular matrix, by halves: products are quicker than an inversion."""
    if len(matrix) <= _SMALL:
        return np.linalg.inv(matrix).astype(np.float64)
    half = len(matrix) // 2
    first, second = _invert_upper(matrix[:half, :half]), _invert_upper(matrix[half:, half:])
    whole = np.zeros_like(matrix)
    whole[:half, :half], whole[half:, half:] = first, second
    whole[:half, half:] = -first @ matrix[:half, half:] @ second
    return whole
