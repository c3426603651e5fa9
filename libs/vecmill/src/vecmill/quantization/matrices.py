"""Which matrices of a graph become int8."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from vecmill.types import FloatArray

# A smaller matrix is not worth it; a head's answer is short.
_SMALLEST_SIZE = 64 * 64
_FEWEST_OUTPUTS = 32
# More outputs than this for an input: logits over a vocabulary, whose order is the answer.
_MOST_EXPANSION = 12


@dataclass(frozen=True, slots=True)
class Matrix:
    """A weight (outputs, inputs) and the products `rows @ weight.T` that use it, several if it is shared."""

    weight: ir.Value
    products: Sequence[ir.Node]

    @property
    def name(self) -> str:
        """The weight's name."""
        assert self.weight.name is not None
        return self.weight.name

    @property
    def inputs(self) -> int:
        """Columns of the weight."""
        return _dimensions(self.weight)[1]

    @property
    def sources(self) -> list[ir.Value]:
        """What is multiplied with it: (rows, inputs) each."""
        return [_present(product.inputs[0]) for product in self.products]

    def read(self) -> FloatArray:
        """The weight, (outputs, inputs) float32."""
        assert self.weight.const_value is not None
        values: FloatArray = self.weight.const_value.numpy()
        return values


def find_matrices(graph: ir.Graph) -> list[Matrix]:
    """The weights of linear layers that are worth it, in the order of the graph."""
    return [matrix for matrix in _linear_layers(graph) if _is_worth_it(matrix)]


def _linear_layers(graph: ir.Graph) -> Iterator[Matrix]:
    for weight in list(graph.initializers.values()):
        uses = weight.uses()
        if uses and all(use.node.op_type == "Gemm" and use.idx == 1 for use in uses):
            yield Matrix(weight, [use.node for use in uses])


def _is_worth_it(matrix: Matrix) -> bool:
    outputs, inputs = _dimensions(matrix.weight)
    return (
        outputs * inputs >= _SMALLEST_SIZE
        and outputs >= _FEWEST_OUTPUTS
        and outputs <= _MOST_EXPANSION * inputs
    )


def _dimensions(weight: ir.Value) -> tuple[int, int]:
    assert weight.shape is not None
    outputs, inputs = weight.shape.numpy()
    return outputs, inputs


def _present(value: ir.Value | None) -> ir.Value:
    assert value is not None
    return value
