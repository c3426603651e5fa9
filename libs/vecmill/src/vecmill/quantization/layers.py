"""Quantises the weights of linear layers one after the other, independent of the runtime."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

from vecmill.errors import UnsupportedModel
from vecmill.quantization.calibration import InputStatistics, observe_inputs
from vecmill.quantization.matrices import Matrix
from vecmill.quantization.rounding import RoundedMatrix, round_matrix
from vecmill.quantization.smoothing import smoothing_factors
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import TokenSequence
from vecmill.values.engine_plan import Precision

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
_SPANS: Mapping[str, Span] = MappingProxyType({"Gelu": Span(32, 0.171), "Relu": Span(0, 0.0)})


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
    plain: Path, precision: Precision, matrices: Sequence[Matrix], sequences: Sequence[TokenSequence]
) -> Iterator[RoundedLayer]:
    """Quantise `matrices` of the graph at `plain`, with the calibration texts `sequences`.

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
