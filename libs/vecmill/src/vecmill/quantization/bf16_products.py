"""Rewrites linear layers so that ONNX Runtime multiplies in bf16 on Arm processors that can do so.

ONNX Runtime rounds the factors of `MatMul` to bf16 there, if a session asks for it, and adds the products up
in float32. It does not for `Gemm`, which graphs have for a product and its bias. So each `Gemm` becomes:

    Add(MatMul(rows, transposed weight), bias)

A weight is read and transposed when the graph is written, one at a time. It stays in float32 until ONNX
Runtime packs it.
"""

import numpy as np
import onnx_ir as ir

from vecmill.errors import UnsupportedModel
from vecmill.quantization.selection import Matrix, find_matrices


def split_products(model: ir.Model) -> None:
    """Replace the products of the linear layers of `model` in place.

    Raises `UnsupportedModel` if no layer is large enough.
    """
    matrices = find_matrices(model.graph)
    if not matrices:
        raise UnsupportedModel("This model has no linear layers that can be computed in bf16.")
    for matrix in matrices:
        _replace(model.graph, matrix)


def _replace(graph: ir.Graph, matrix: Matrix) -> None:
    weight = _add_transposed(graph, matrix)
    for product in matrix.products:
        tape = ir.tape.Tape()
        bias = product.inputs[2] if len(product.inputs) > 2 else None
        result = tape.op("MatMul", [product.inputs[0], weight])
        if bias is not None:
            result = tape.op("Add", [result, bias])
        ir.convenience.replace_nodes_and_values(
            graph, product, [product], tape.nodes, product.outputs, [result]
        )
    del graph.initializers[matrix.name]


def _add_transposed(graph: ir.Graph, matrix: Matrix) -> ir.Value:
    name, shape = f"{matrix.name}.transposed", ir.Shape((matrix.inputs, matrix.outputs))
    tensor = ir.LazyTensor(
        lambda: ir.Tensor(np.ascontiguousarray(matrix.read().T)),
        dtype=ir.DataType.FLOAT,
        shape=shape,
        name=name,
    )
    value = ir.Value(name=name, shape=shape, type=ir.TensorType(ir.DataType.FLOAT), const_value=tensor)
    graph.register_initializer(value)
    return value
