"""Linear layers rounded to 8 bits, one after the other, whatever form a runtime then wants them in."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

from vecmill.errors import UnsupportedModel
from vecmill.plan import Precision
from vecmill.quantization.calibration import InputStatistics, observe_inputs
from vecmill.quantization.matrices import Matrix
from vecmill.quantization.rounding import RoundedMatrix, round_matrix
from vecmill.quantization.smoothing import smoothing_factors
from vecmill.types import FloatArray, TokenSequence

_MIDDLE = 128
_PROGRESS_S = 10.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Span:
    """How rows lie in 0..255: `zero` stands for 0, and nothing is below `-lowest`, if that is known."""

    zero: int = _MIDDLE
    lowest: float | None = None


# What comes out of an activation: never below this.
_SPANS: Mapping[str, Span] = MappingProxyType({"Gelu": Span(32, 0.171), "Relu": Span(0, 0.0)})


@dataclass(frozen=True, slots=True)
class RoundedLayer:
    """A matrix and its 8 bits: `rows @ weight.T` is nearly `(rows / factors) @ rounded.T`.

    `factors` (inputs,) are `None` where rows are even already; `span` is how rows lie.
    """

    matrix: Matrix
    rounded: RoundedMatrix
    factors: FloatArray | None
    span: Span


def round_layers(
    plain: Path, precision: Precision, matrices: Sequence[Matrix], sequences: Sequence[TokenSequence]
) -> Iterator[RoundedLayer]:
    """Round `matrices` of the graph that is written at `plain`, by what `sequences` show of their inputs.

    Raises `UnsupportedModel` if there are none, or if their inputs are not finite.
    """
    if not matrices:
        raise UnsupportedModel(f"This model has no linear layers that {precision} could make smaller.")
    told_s = time.monotonic()
    for number, (matrix, statistics) in enumerate(observe_inputs(plain, matrices, sequences), start=1):
        if not np.isfinite(statistics.largest).all():
            raise UnsupportedModel(
                f"{matrix.name} cannot become {precision}: in fp32 it is multiplied with numbers that are "
                "not finite. Check the model's weights, or use fp32."
            )
        yield _round_layer(matrix, statistics)
        if time.monotonic() - told_s > _PROGRESS_S:
            told_s = time.monotonic()
            logger.info("%s: %d of %d matrices are made.", precision, number, len(matrices))


def feeds_attention(matrix: Matrix) -> bool:
    """Whether queries, keys or values come out of it: its outputs are seen as rows of one head each."""
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
