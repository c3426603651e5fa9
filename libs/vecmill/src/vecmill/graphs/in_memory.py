"""Serialises a graph to memory, for machines without a disk that can hold the prepared graph."""

import mmap

import onnx_ir as ir

from vecmill.graphs.alignment import ALIGNMENT_BYTES

# Smaller tensors stay in the graph itself.
_SMALL_BYTES = 256


def serialize_graph(model: ir.Model, weights_name: str) -> tuple[bytes, memoryview]:
    """Return the graph, and the contents of its external file of weights named `weights_name`.

    The weights are read into the contents one after the other. `model` then refers to the external file.
    """
    values = [
        value
        for graph in model.graphs()
        for value in graph.initializers.values()
        if value.const_value is not None and value.const_value.nbytes > _SMALL_BYTES
    ]
    offsets, size = [], 0
    for value in values:
        assert value.const_value is not None
        offsets.append(size)
        size += value.const_value.nbytes
        size += -size % ALIGNMENT_BYTES
    contents = memoryview(mmap.mmap(-1, max(size, 1)))
    for value, offset in zip(values, offsets, strict=True):
        tensor = value.const_value
        assert tensor is not None
        contents[offset : offset + tensor.nbytes] = tensor.tobytes()
        value.const_value = ir.ExternalTensor(
            weights_name,
            offset,
            tensor.nbytes,
            tensor.dtype,
            shape=ir.Shape(tensor.shape.numpy()),
            name=str(value.name),
        )
    return ir.to_proto(model).SerializeToString(), contents
