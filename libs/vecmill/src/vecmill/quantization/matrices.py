"""Selects the matrices of a graph to quantise."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from vecmill.values.aliases import FloatArray

# Smaller matrices save little, and those of heads have few outputs.
_SMALLEST_SIZE = 64 * 64
_FEWEST_OUTPUTS = 32
# More outputs per input: logits over a vocabulary, whose order must be exact.
_MOST_EXPANSION = 12


@dataclass(frozen=True, slots=True)
class Matrix:
    """A weight (outputs, inputs) and the products `rows @ weight.T` that use it."""

    weight: ir.Value
    products: Sequence[ir.Node]

    @property
    def name(self) -> str:
        """The weight's name."""
        assert self.weight.name is not None
        return self.weight.name

    @property
    def inputs(self) -> int:
        """The number of columns of the weight."""
        return _dimensions(self.weight)[1]

    @property
    def sources(self) -> list[ir.Value]:
        """The other factors of the products, (rows, inputs) each."""
        return [_present(product.inputs[0]) for product in self.products]

    def read(self) -> FloatArray:
        """Read the weight, (outputs, inputs), float32."""
        assert self.weight.const_value is not None
        values: FloatArray = self.weight.const_value.numpy()
        return values


def find_matrices(graph: ir.Graph) -> list[Matrix]:
    """Return the weights of linear layers that should be quantised, in the order of the graph."""
    return [matrix for matrix in _linear_layers(graph) if _is_suitable(matrix)]


def add_constant(graph: ir.Graph, name: str, values: npt.ArrayLike, dtype: npt.DTypeLike) -> ir.Value:
    """Add a constant to the graph and return its value."""
    array = np.asarray(values, dtype, order="C")
    value = ir.Value(
        name=name,
        shape=ir.Shape(array.shape),
        type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
        const_value=ir.tensor(array),
    )
    graph.register_initializer(value)
    return value


def _linear_layers(graph: ir.Graph) -> Iterator[Matrix]:
    for weight in list(graph.initializers.values()):
        uses = weight.uses()
        if uses and all(use.node.op_type == "Gemm" and use.idx == 1 for use in uses):
            yield Matrix(weight, [use.node for use in uses])


def _is_suitable(matrix: Matrix) -> bool:
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
