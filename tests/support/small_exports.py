"""A small model directory with an ONNX graph instead of safetensors, written without torch."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from support.exported_models import without_weights
from support.tiny_models import TinyBert, save_tiny_bert

WIDTH, TOKENS = 32, 2_000


def save_small_export(directory: Path, graph: onnx.ModelProto | None = None) -> Path:
    """Write a model of `graph`, by default of `small_graph`, into `directory`, and return that."""
    source = save_tiny_bert(directory.with_name(f"{directory.name}-source"), TinyBert())
    without_weights(source, directory)
    onnx.save(graph or small_graph(), directory / "model.onnx")
    return directory


def small_graph() -> onnx.ModelProto:
    """A table of random embeddings, as an exporter would name its inputs and its output."""
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"])
        for name in ("input_ids", "attention_mask", "token_type_ids")
    ]
    output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "tokens", WIDTH])
    values = np.random.default_rng(0).standard_normal((TOKENS, WIDTH)).astype(np.float32)
    table = numpy_helper.from_array(values, "table")
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])]
    graph = helper.make_graph(nodes, "small", inputs, [output], [table])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
