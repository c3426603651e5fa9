"""Rounds the weights of linear layers to 8 bits, one layer after the other, independent of the runtime.

Smoothing. x @ w.T is (x / f) @ (w * f).T for any factors f of the inputs. Large inputs with small weights
have a factor above 1, and small inputs with large weights a factor below 1, so inputs and weights share the
error. Source: Xiao et al., "SmoothQuant", ICML 2023, equation 4.

Rounding each weight to its nearest step does not minimise the error of a layer's outputs. GPTQ rounds the
weights of one input after another, and after each input adjusts the remaining weights. Correlated inputs then
compensate for the error. Source: Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative
Pre-trained Transformers", ICLR 2023, sections 3.2-3.3.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vecmill.errors import UnsupportedModel
from vecmill.graphs.external_data import SerializedGraph
from vecmill.quantization.calibration import InputStatistics, observe_inputs
from vecmill.quantization.selection import Matrix
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import TokenSequence
from vecmill.values.engine_plan import Precision

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


_MIDDLE = 128
_PROGRESS_S = 10.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Span:
    """The quantisation range of activations: `zero` in 0..255 stands for 0, `-lowest` is the minimum.

    `lowest` is `None` if the minimum is unknown.
    """

    zero: int = _MIDDLE
    lowest: float | None = None


# The ranges of outputs of activations with a lower bound.
_SPANS: Mapping[str, Span] = {"Gelu": Span(32, 0.171), "Relu": Span(0, 0.0)}


@dataclass(frozen=True, slots=True)
class RoundedLayer:
    """A matrix and its int8 form: `rows @ weight.T` is approximately `(rows / factors) @ rounded.T`.

    `factors` (inputs,) are `None` if no smoothing is needed. `span` is the range of the rows.
    """

    matrix: Matrix
    rounded: RoundedMatrix
    factors: FloatArray | None
    span: Span


def round_layers(
    plain: SerializedGraph,
    precision: Precision,
    matrices: Sequence[Matrix],
    sequences: Sequence[TokenSequence],
) -> Iterator[RoundedLayer]:
    """Quantise `matrices` of the graph `plain`, with the calibration texts `sequences`.

    Raises `UnsupportedModel` if there are no matrices, or if their inputs are not finite.
    """
    if not matrices:
        raise UnsupportedModel(f"This model has no linear layers that can be quantised to {precision}.")
    logged_s = time.monotonic()
    for number, (matrix, statistics) in enumerate(observe_inputs(plain, matrices, sequences), start=1):
        if not np.isfinite(statistics.largest).all():
            raise UnsupportedModel(
                f"{matrix.name} cannot be quantised to {precision}: its inputs in fp32 are not finite. "
                "Check the model's weights, or use fp32."
            )
        yield _round_layer(matrix, statistics)
        if time.monotonic() - logged_s > _PROGRESS_S:
            logged_s = time.monotonic()
            logger.info("%s: %d of %d matrices are quantised.", precision, number, len(matrices))


def feeds_attention(matrix: Matrix) -> bool:
    """Return whether the outputs are queries, keys or values, which are reshaped to one row per head."""
    uses = (use for product in matrix.products for use in product.outputs[0].uses())
    return any(use.node.op_type == "Reshape" for use in uses)


def _round_layer(matrix: Matrix, statistics: InputStatistics) -> RoundedLayer:
    weight, span = matrix.read(), _span(matrix)
    factors = smoothing_factors(statistics.largest, weight) if span.lowest is None else None
    products = statistics.products
    if factors is not None:
        weight = weight * factors
        products = products / np.outer(factors, factors)
    return RoundedLayer(matrix, round_matrix(weight, products), factors, span)


def _span(matrix: Matrix) -> Span:
    operators = {source.producer().op_type if source.producer() else "" for source in matrix.sources}  # type: ignore[union-attr]
    return _SPANS.get(operators.pop(), Span()) if len(operators) == 1 else Span()
