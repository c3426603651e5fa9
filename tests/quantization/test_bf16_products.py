"""Linear layers as products that ONNX Runtime computes in bf16 on Arm: the same numbers in fp32."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from support.graph_session import GraphSession
from support.texts import mixed_texts
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.architectures.build import build_graph
from vecmill.directory_layouts import describe_model
from vecmill.errors import UnsupportedModel
from vecmill.graphs.batch_layout import RaggedLayout
from vecmill.models import ModelDescription, locate_model
from vecmill.quantization.bf16_products import split_products
from vecmill.quantization.selection import find_matrices
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.batch import Batch


def describe(folder: Path, *, hidden: int) -> ModelDescription:
    config = {"hidden_size": hidden, "intermediate_size": 2 * hidden}
    return describe_model(locate_model(save_tiny_bert(folder, TinyBert(config=config))))


def test_rows_do_not_change_and_no_product_keeps_its_bias(tmp_path: Path) -> None:
    description = describe(tmp_path / "model", hidden=64)
    batch = Batch.of(Tokenizer.load(description).encode(mixed_texts(1, 8)))
    plain, split = (build_graph(description, RaggedLayout) for _ in range(2))
    layers = len(find_matrices(plain.graph))
    split_products(split)
    assert layers > 0
    before, after = (Counter(node.op_type for node in model.graph) for model in (plain, split))
    assert before["Gemm"] - after["Gemm"] == layers
    assert after["MatMul"] - before["MatMul"] == layers
    expected = GraphSession(plain).run(batch).values
    np.testing.assert_allclose(GraphSession(split).run(batch).values, expected, atol=1e-6)


def test_a_product_without_a_bias_is_one_product() -> None:
    weight = np.random.default_rng(1).standard_normal((96, 64)).astype(np.float32)
    number = ir.TensorType(ir.DataType.FLOAT)
    shape = ir.Shape(weight.shape)
    stored = ir.Value(name="weight", shape=shape, type=number, const_value=ir.tensor(weight, name="weight"))
    rows = ir.Value(name="x", shape=ir.Shape(("n", 64)), type=number)
    product = ir.Node("", "Gemm", [rows, stored], [ir.AttrInt64("transB", 1)])
    graph = ir.Graph([rows], product.outputs, nodes=[product], initializers=[stored], opset_imports={"": 21})
    split_products(ir.Model(graph, ir_version=10))
    assert [node.op_type for node in graph] == ["MatMul"]
    (transposed,) = graph.initializers.values()
    assert transposed.const_value is not None
    np.testing.assert_array_equal(transposed.const_value.numpy(), weight.T)


def test_a_model_without_large_layers_is_refused(tmp_path: Path) -> None:
    model = build_graph(describe(tmp_path, hidden=32), RaggedLayout)
    with pytest.raises(UnsupportedModel, match="no linear layers that can be computed in bf16"):
        split_products(model)
