"""Putting int8 products where a graph has fp32 ones.

    rows @ weight.T + bias      becomes, for rows of any number, each with a step of its own

    steps = largest magnitude of each row / 127
    round(rows / steps) + 128          uint8, 128 is zero
    times int8 weights                 int32, exact
    * scales of outputs * steps + bias

A row that comes out of an activation with a known lower bound wastes nothing on what it cannot be:
zero is then near the lower end of the 256 values.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from vecmill.plan import Precision
from vecmill.quantization.layers import RoundedLayer, Span, feeds_attention, round_layers
from vecmill.quantization.matrices import find_matrices
from vecmill.types import TokenSequence

_RUNTIME_DOMAIN = "com.microsoft"
_SMALLEST_STEP = 1e-9


def quantize_graph(
    model: ir.Model, plain: Path, precision: Precision, sequences: Sequence[TokenSequence]
) -> None:
    """Give `model` int8 products in place. `plain` is the same graph, written; `sequences` calibrate.

    `int8-fast` quantises every linear layer, `int8` all but those that make queries, keys and values.
    Raises `UnsupportedModel` for a graph without linear layers, or with inputs of them that are not finite.
    """
    matrices = find_matrices(model.graph)
    if precision is Precision.INT8:
        matrices = [matrix for matrix in matrices if not feeds_attention(matrix)]
    model.graph.opset_imports[_RUNTIME_DOMAIN] = 1
    for layer in round_layers(plain, precision, matrices, sequences):
        _replace(model.graph, layer)


def _replace(graph: ir.Graph, layer: RoundedLayer) -> None:
    name = layer.matrix.name
    for number, product in enumerate(layer.matrix.products):
        writer = _Writer(graph, f"{name}.int8.{number}" if number else f"{name}.int8")
        _write_product(writer, product, layer)
    del graph.initializers[name]


class _Writer:
    """Records the nodes and constants that take one product's place."""

    def __init__(self, graph: ir.Graph, name: str) -> None:
        self._graph = graph
        self._name = name
        self._tape = ir.tape.Tape()

    def add(self, operator: str, *inputs: ir.Value | None, domain: str = "", **attributes: int) -> ir.Value:
        return self._tape.op(operator, inputs, attributes, domain=domain)

    def constant(self, values: npt.ArrayLike, kind: npt.DTypeLike) -> ir.Value:
        array = np.asarray(values, kind)
        value = ir.Value(
            name=f"{self._name}.{len(self._tape.nodes)}.{len(self._graph.initializers)}",
            shape=ir.Shape(array.shape),
            type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
            const_value=ir.tensor(array),
        )
        self._graph.register_initializer(value)
        return value

    def take_place_of(self, product: ir.Node, result: ir.Value) -> None:
        ir.convenience.replace_nodes_and_values(
            self._graph, product, [product], self._tape.nodes, product.outputs, [result]
        )


def _write_product(writer: _Writer, product: ir.Node, layer: RoundedLayer) -> None:
    rounded, factors, span = layer.rounded, layer.factors, layer.span
    rows = product.inputs[0]
    assert rows is not None
    bias = product.inputs[2] if len(product.inputs) > 2 else None
    if factors is not None:
        rows = writer.add("Mul", rows, writer.constant(1 / factors, np.float32))
    steps, zero = _steps(writer, rows, span), writer.constant(span.zero, np.uint8)
    one_step_a_row = writer.add("Squeeze", steps, writer.constant([-1], np.int64))
    zeros = writer.add("Expand", zero, writer.add("Shape", one_step_a_row))
    result = writer.add(
        "MatMulIntegerToFloat",
        writer.add("QuantizeLinear", rows, one_step_a_row, zeros, axis=0),
        writer.constant(np.ascontiguousarray(rounded.values.T), np.int8),
        writer.constant(1, np.float32),  # the rows' own steps come afterwards: the operator takes one for all
        writer.constant(rounded.scales, np.float32),
        zero,
        writer.constant(np.zeros(len(rounded.scales)), np.int8),
        domain=_RUNTIME_DOMAIN,
    )
    result = writer.add("Mul", result, steps)
    if bias is not None:
        result = writer.add("Add", result, bias)
    writer.take_place_of(product, result)


def _steps(writer: _Writer, rows: ir.Value, span: Span) -> ir.Value:
    """The step of each row, (rows, 1)."""
    last = writer.constant([-1], np.int64)
    room = writer.constant(1 / (255 - span.zero), np.float32)
    if span.lowest is None:
        largest = writer.add("ReduceMax", writer.add("Abs", rows), last, keepdims=1)
        smallest = _SMALLEST_STEP
    else:
        largest = writer.add("ReduceMax", rows, last, keepdims=1)
        smallest = span.lowest / span.zero if span.zero else _SMALLEST_STEP
    return writer.add("Max", writer.add("Mul", largest, room), writer.constant(smallest, np.float32))
