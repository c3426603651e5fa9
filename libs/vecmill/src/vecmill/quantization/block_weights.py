"""Replaces the weights of linear layers by int8 in blocks, without calibration.

Each row of a matrix is divided into blocks of 32 neighbouring inputs, and each block has a scale:

    scale = largest magnitude of the block / 127
    weight = scale * (uint8 - 128)

ONNX Runtime's `MatMulNBits` multiplies with them. It quantises the activations in the same way at run time,
each row alone, so an embedding does not depend on the other texts of its batch.

A weight takes 9 bits instead of 32. No texts are computed to make it, and one matrix is in memory at a time,
so large models start as fast as in fp32, in less memory.
"""

import threading
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from vecmill.errors import UnsupportedModel
from vecmill.graphs.ops import RUNTIME_DOMAIN
from vecmill.quantization.selection import Matrix, find_matrices
from vecmill.values.aliases import FloatArray

BLOCK_INPUTS = 32
_LARGEST, _ZERO = 127, 128
# Products of int8, added up in 32 bits. Lower levels convert the weights to float32 in each call.
_BYTE_PRODUCTS = 4


def quantize_in_blocks(model: ir.Model) -> None:
    """Replace the weights of the linear layers of `model` in place; they are read when it is written.

    Raises `UnsupportedModel` if no layer is suitable: its inputs must be a multiple of `BLOCK_INPUTS`.
    """
    matrices = [matrix for matrix in find_matrices(model.graph) if matrix.inputs % BLOCK_INPUTS == 0]
    if not matrices:
        raise UnsupportedModel("This model has no linear layers that can be quantised to int8-blocks.")
    model.graph.opset_imports[RUNTIME_DOMAIN] = 1
    for matrix in matrices:
        _replace(model.graph, matrix)


def round_blocks(weight: FloatArray) -> tuple[npt.NDArray[np.uint8], FloatArray]:
    """Round `weight` (outputs, inputs), float32.

    Returns values (outputs, blocks, `BLOCK_INPUTS`), uint8, and scales (outputs, blocks), float32.
    """
    blocks = weight.reshape(len(weight), -1, BLOCK_INPUTS)
    scales = (np.abs(blocks).max(axis=-1) / _LARGEST).astype(np.float32)
    scales[scales == 0] = 1
    values = blocks / scales[..., None]
    return (np.rint(values, out=values) + _ZERO).astype(np.uint8), scales


class _RoundedBlocks:
    """The values and scales of a matrix, which are made once for both and kept until both are taken."""

    def __init__(self, read: Callable[[], FloatArray]) -> None:
        self._read = read
        self._left: dict[str, npt.NDArray[np.uint8] | FloatArray] = {}
        self._lock = threading.Lock()

    def take(self, part: str) -> ir.TensorProtocol:
        with self._lock:
            if part not in self._left:
                values, scales = round_blocks(self._read())
                self._left = {"values": values, "scales": scales}
            return ir.Tensor(self._left.pop(part))


def _replace(graph: ir.Graph, matrix: Matrix) -> None:
    outputs, blocks = matrix.outputs, matrix.inputs // BLOCK_INPUTS
    rounded = _RoundedBlocks(matrix.read)
    values = _add_lazy(graph, matrix, rounded, "values", ir.DataType.UINT8, (outputs, blocks, BLOCK_INPUTS))
    scales = _add_lazy(graph, matrix, rounded, "scales", ir.DataType.FLOAT, (outputs, blocks))
    attributes = {
        "K": matrix.inputs,
        "N": outputs,
        "bits": 8,
        "block_size": BLOCK_INPUTS,
        "accuracy_level": _BYTE_PRODUCTS,
    }
    for product in matrix.products:
        tape = ir.tape.Tape()
        rows, bias = product.inputs[0], product.inputs[2] if len(product.inputs) > 2 else None
        inputs = [rows, values, scales] if bias is None else [rows, values, scales, None, None, bias]
        result = tape.op("MatMulNBits", inputs, attributes, domain=RUNTIME_DOMAIN)
        ir.convenience.replace_nodes_and_values(
            graph, product, [product], tape.nodes, product.outputs, [result]
        )
    del graph.initializers[matrix.name]


def _add_lazy(
    graph: ir.Graph,
    matrix: Matrix,
    rounded: _RoundedBlocks,
    part: str,
    dtype: ir.DataType,
    shape: tuple[int, ...],
) -> ir.Value:
    name = f"{matrix.name}.{part}"
    tensor = ir.LazyTensor(lambda: rounded.take(part), dtype=dtype, shape=ir.Shape(shape), name=name)
    value = ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(dtype), const_value=tensor)
    graph.register_initializer(value)
    return value
