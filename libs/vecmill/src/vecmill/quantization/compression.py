"""Replaces fp32 weights of a graph by int8, for a runtime that quantises activations itself.

    rows @ weight.T      becomes      (rows / factors) @ (int8 weights * scales of outputs).T

OpenVINO computes such a product in 8 bits. It quantises each row of activations at run time, in groups of
consecutive inputs with a scale each. So an embedding does not depend on the other texts of its batch, and a
large input affects the scale of its own group alone; therefore queries, keys and values need not stay fp32.
"""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from vecmill.quantization.layers import RoundedLayer
from vecmill.quantization.matrices import Matrix, add_constant, find_matrices


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
