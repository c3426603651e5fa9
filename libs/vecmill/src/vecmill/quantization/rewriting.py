"""Replaces fp32 weights of a graph by int8, for two kinds of runtimes.

ONNX Runtime gets products of int8 (`quantize_graph`):

    rows @ weight.T + bias      becomes, with one quantisation step per row

    steps = largest magnitude of each row / 127
    round(rows / steps) + 128          uint8, 128 is zero
    times int8 weights                 int32, exact
    * scales of outputs * steps + bias

For the output of an activation with a known lower bound, zero is near the lower end of the 256 values, so no
values are wasted.

OpenVINO quantises activations itself, and gets int8 weights alone (`compress_weights`):

    rows @ weight.T      becomes      (rows / factors) @ (int8 weights * scales of outputs).T

It quantises each row of activations at run time, in groups of consecutive inputs with a scale each. So an
embedding does not depend on the other texts of its batch, and a large input affects the scale of its own
group alone; therefore queries, keys and values need not stay fp32.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from vecmill.graphs.external_data import SerializedGraph
from vecmill.graphs.ops import RUNTIME_DOMAIN
from vecmill.quantization.rounding import RoundedLayer, Span, feeds_attention, round_layers
from vecmill.quantization.selection import Matrix, add_constant, find_matrices
from vecmill.values.batch import TokenSequence
from vecmill.values.engine_plan import Precision

_SMALLEST_STEP = 1e-9


def quantize_graph(
    model: ir.Model, plain: SerializedGraph, precision: Precision, sequences: Sequence[TokenSequence]
) -> None:
    """Replace products of `model` by int8 in place.

    `plain` is the same graph with its weights, `sequences` the calibration texts. `int8-fast` quantises
    every linear layer, `int8` all but those of queries, keys and values. Raises `UnsupportedModel` if the
    graph has no linear layers, or if the inputs of a linear layer are not finite.
    """
    matrices = find_matrices(model.graph)
    if precision is Precision.INT8:
        matrices = [matrix for matrix in matrices if not feeds_attention(matrix)]
    model.graph.opset_imports[RUNTIME_DOMAIN] = 1
    for layer in round_layers(plain, precision, matrices, sequences):
        _replace(model.graph, layer)


def _replace(graph: ir.Graph, layer: RoundedLayer) -> None:
    name = layer.matrix.name
    for number, product in enumerate(layer.matrix.products):
        writer = _GraphWriter(graph, f"{name}.int8.{number}" if number else f"{name}.int8")
        _write_product(writer, product, layer)
    del graph.initializers[name]


class _GraphWriter:
    """A recorder of the nodes and constants that replace one product."""

    def __init__(self, graph: ir.Graph, name: str) -> None:
        self._graph = graph
        self._name = name
        self._tape = ir.tape.Tape()

    def add(self, operator: str, *inputs: ir.Value | None, domain: str = "", **attributes: int) -> ir.Value:
        return self._tape.op(operator, inputs, attributes, domain=domain)

    def constant(self, values: npt.ArrayLike, kind: npt.DTypeLike) -> ir.Value:
        name = f"{self._name}.{len(self._tape.nodes)}.{len(self._graph.initializers)}"
        return add_constant(self._graph, name, values, kind)

    def replace(self, product: ir.Node, result: ir.Value) -> None:
        ir.convenience.replace_nodes_and_values(
            self._graph, product, [product], self._tape.nodes, product.outputs, [result]
        )


def _write_product(writer: _GraphWriter, product: ir.Node, layer: RoundedLayer) -> None:
    rounded, factors, span = layer.rounded, layer.factors, layer.span
    rows = product.inputs[0]
    assert rows is not None
    bias = product.inputs[2] if len(product.inputs) > 2 else None
    if factors is not None:
        rows = writer.add("Mul", rows, writer.constant(1 / factors, np.float32))
    steps, zero = _steps(writer, rows, span), writer.constant(span.zero, np.uint8)
    row_steps = writer.add("Squeeze", steps, writer.constant([-1], np.int64))
    zeros = writer.add("Expand", zero, writer.add("Shape", row_steps))
    result = writer.add(
        "MatMulIntegerToFloat",
        writer.add("QuantizeLinear", rows, row_steps, zeros, axis=0),
        writer.constant(np.ascontiguousarray(rounded.values.T), np.int8),
        writer.constant(1, np.float32),  # the operator has one step for all rows; the steps of rows follow
        writer.constant(rounded.scales, np.float32),
        zero,
        writer.constant(np.zeros(len(rounded.scales)), np.int8),
        domain=RUNTIME_DOMAIN,
    )
    result = writer.add("Mul", result, steps)
    if bias is not None:
        result = writer.add("Add", result, bias)
    writer.replace(product, result)


def _steps(writer: _GraphWriter, rows: ir.Value, span: Span) -> ir.Value:
    """Return the quantisation step of each row, (rows, 1)."""
    last = writer.constant([-1], np.int64)
    scale = writer.constant(1 / (255 - span.zero), np.float32)
    if span.lowest is None:
        largest = writer.add("ReduceMax", writer.add("Abs", rows), last, keepdims=1)
        smallest = _SMALLEST_STEP
    else:
        largest = writer.add("ReduceMax", rows, last, keepdims=1)
        smallest = span.lowest / span.zero if span.zero else _SMALLEST_STEP
    return writer.add("Max", writer.add("Mul", largest, scale), writer.constant(smallest, np.float32))


def compress_weights(model: ir.Model, layers: Sequence[RoundedLayer]) -> None:
    """Replace the weights of `layers` in `model` by int8, in place. Other layers keep their weights."""
    targets = {matrix.name: matrix for matrix in find_matrices(model.graph)}
    for layer in layers:
        _compress(model.graph, targets[layer.matrix.name], layer)


def _compress(graph: ir.Graph, matrix: Matrix, layer: RoundedLayer) -> None:
    values = add_constant(graph, f"{matrix.name}.int8", layer.rounded.values, np.int8)
    scales = add_constant(graph, f"{matrix.name}.scales", layer.rounded.scales, np.float32)
    tape = ir.tape.Tape()
    weight = tape.op("DequantizeLinear", [values, scales], {"axis": 0})
    graph.insert_before(matrix.products[0], tape.nodes)
    if layer.factors is not None:
        divisors = add_constant(graph, f"{matrix.name}.factors", 1 / layer.factors, np.float32)
        for product in matrix.products:
            _divide_inputs(graph, product, divisors)
    for product in matrix.products:
        product.replace_input_with(1, weight)
    del graph.initializers[matrix.name]


def _divide_inputs(graph: ir.Graph, product: ir.Node, inverse: ir.Value) -> None:
    tape = ir.tape.Tape()
    rows = tape.op("Mul", [product.inputs[0], inverse])
    graph.insert_before(product, tape.nodes)
    product.replace_input_with(0, rows)
