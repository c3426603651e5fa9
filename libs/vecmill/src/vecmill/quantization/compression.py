"""Putting 8-bit weights where a graph has fp32 ones, for a runtime that rounds activations itself.

    rows @ weight.T      becomes      (rows / factors) @ (int8 weights * scales of outputs).T

OpenVINO multiplies such a product in 8 bits: it rounds each row of activations when it is there, in groups of
neighbouring inputs with a scale each. So a row does not depend on who shares its batch, and a large input
takes the scale of its own group alone, which is why queries, keys and values need not stay fp32.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from vecmill.plan import Precision
from vecmill.quantization.layers import RoundedLayer, round_layers
from vecmill.quantization.matrices import Matrix, find_matrices
from vecmill.types import TokenSequence


def compress_weights(
    model: ir.Model, observed: ir.Model, plain: Path, sequences: Sequence[TokenSequence]
) -> None:
    """Give `model` int8 weights in place.

    `observed` is a graph of the same weights for which `sequences` are inputs, and `plain` where it is
    written. Raises `UnsupportedModel` for a graph without linear layers, or with inputs of them that are
    not finite.
    """
    targets = {matrix.name: matrix for matrix in find_matrices(model.graph)}
    for layer in round_layers(plain, Precision.INT8, find_matrices(observed.graph), sequences):
        _compress(model.graph, targets[layer.matrix.name], layer)


def _compress(graph: ir.Graph, matrix: Matrix, layer: RoundedLayer) -> None:
    values = _constant(graph, f"{matrix.name}.int8", layer.rounded.values, np.int8)
    scales = _constant(graph, f"{matrix.name}.scales", layer.rounded.scales, np.float32)
    tape = ir.tape.Tape()
    weight = tape.op("DequantizeLinear", [values, scales], {"axis": 0})
    graph.insert_before(matrix.products[0], tape.nodes)
    if layer.factors is not None:
        shares = _constant(graph, f"{matrix.name}.factors", 1 / layer.factors, np.float32)
        for product in matrix.products:
            _scale_rows(graph, product, shares)
    for product in matrix.products:
        product.replace_input_with(1, weight)
    del graph.initializers[matrix.name]


def _scale_rows(graph: ir.Graph, product: ir.Node, shares: ir.Value) -> None:
    tape = ir.tape.Tape()
    rows = tape.op("Mul", [product.inputs[0], shares])
    graph.insert_before(product, tape.nodes)
    product.replace_input_with(0, rows)


def _constant(graph: ir.Graph, name: str, values: npt.ArrayLike, kind: npt.DTypeLike) -> ir.Value:
    array = np.ascontiguousarray(values, kind)
    value = ir.Value(
        name=name,
        shape=ir.Shape(array.shape),
        type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
        const_value=ir.tensor(array),
    )
    graph.register_initializer(value)
    return value
