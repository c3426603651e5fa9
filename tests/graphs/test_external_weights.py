"""Stored weights begin at a multiple of 64 bytes, have unique names, and are what they were."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from vecmill.engines.onnx.preparation import store_optimized
from vecmill.engines.prepared import MODEL_FILE, WEIGHTS_FILE, BuiltGraph
from vecmill.graphs import external_data
from vecmill.graphs.external_data import (
    ALIGNMENT_BYTES,
    align_weights,
    drop_repeated_initializers,
    stored_offsets,
)
from vecmill.graphs.finish import write_graph
from vecmill.graphs.ops import Ops
from vecmill.models.weights import StoredTensor
from vecmill.values.aliases import FloatArray

WIDTH = 768
ODD_ENTRIES = 1_025  # of 8 bytes: what lies behind them is 8 bytes off
SHAPES = [(1, WIDTH), (11, 313), (300, 1), (1001, 313)]  # the last is large enough for a page of its own


def store(folder: Path, shape: tuple[int, int]) -> None:
    """Store a graph in `folder` that looks numbers up in an odd table and multiplies them with a weight."""
    op = Ops()
    table = op.Gather(op.constant(np.arange(ODD_ENTRIES)), op.input("indices", ["rows", shape[1]]))
    numbers = op.Cast(table, to=onnx.TensorProto.FLOAT)
    product = op.Gemm(
        numbers, op.weight(StoredTensor("weight", shape, lambda: weight(shape))), None, transB=1
    )
    plain = folder / "plain.onnx"
    write_graph(op.model(product, "rows", ["rows", shape[0]]), plain)
    store_optimized(BuiltGraph(plain), folder)


def weight(shape: tuple[int, int]) -> FloatArray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def read_offsets(folder: Path) -> list[int]:
    return list(stored_offsets(onnx.load(folder / MODEL_FILE, load_external_data=False)))


def run(folder: Path, indices: np.ndarray) -> FloatArray:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        str(folder / MODEL_FILE), options, providers=["CPUExecutionProvider"]
    )
    return np.asarray(session.run(None, {"indices": indices})[0])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_lies_badly_is_moved(tmp_path: Path, shape: tuple[int, int]) -> None:
    store(tmp_path, shape)
    assert [offset % ALIGNMENT_BYTES for offset in read_offsets(tmp_path)] == [0, 0, 0]
    indices = np.random.default_rng(1).integers(0, ODD_ENTRIES, (5, shape[1]))
    expected = indices.astype(np.float64) @ weight(shape).astype(np.float64).T
    assert np.allclose(run(tmp_path, indices), expected, rtol=1e-4, atol=0.1)


def test_the_runtime_itself_aligns_nothing_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Once this fails, the module is no longer needed.
    monkeypatch.setattr(external_data, "align_weights", lambda graph, weights: None)
    store(tmp_path, (1, WIDTH))
    assert sorted(offset % ALIGNMENT_BYTES for offset in read_offsets(tmp_path)) == [0, 8, 8]


def test_what_lies_well_is_left_alone(tmp_path: Path) -> None:
    store(tmp_path, (1, WIDTH))
    graph, weights = tmp_path / MODEL_FILE, tmp_path / WEIGHTS_FILE
    before = graph.stat().st_mtime_ns, weights.read_bytes()
    align_weights(graph, weights)
    assert (graph.stat().st_mtime_ns, weights.read_bytes()) == before


def branch(name: str, addends: list[float]) -> onnx.GraphProto:
    """Make a branch that adds the first of `addends` to `x`. All of them have the same name."""
    tensors = [numpy_helper.from_array(np.array([number], np.float32), "addend") for number in addends]
    output = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"])
    return helper.make_graph([helper.make_node("Add", ["x", "addend"], [name])], name, [], [output], tensors)


def save_branches(path: Path, *, first: list[float], second: list[float]) -> None:
    """Write a graph of two branches, of which `condition` chooses one."""
    value = helper.make_tensor_value_info
    node = helper.make_node(
        "If", ["condition"], ["y"], then_branch=branch("a", first), else_branch=branch("b", second)
    )
    inputs = [value("condition", TensorProto.BOOL, []), value("x", TensorProto.FLOAT, ["n"])]
    graph = helper.make_graph([node], "main", inputs, [value("y", TensorProto.FLOAT, ["n"])])
    opset = helper.make_opsetid("", 20)
    path.write_bytes(helper.make_model(graph, opset_imports=[opset], ir_version=9).SerializeToString())


def open_session(path: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def test_an_initialiser_that_a_branch_has_twice_is_kept_once(tmp_path: Path) -> None:
    path = tmp_path / MODEL_FILE
    save_branches(path, first=[1.0, 2.0, 2.0], second=[3.0])
    with pytest.raises(Exception, match="not unique"):
        open_session(path)
    drop_repeated_initializers(path)
    session, x = open_session(path), np.array([10.0], np.float32)
    for condition, expected in ((True, 11.0), (False, 13.0)):
        (y,) = session.run(None, {"condition": np.array(condition), "x": x})
        assert y == [expected]


def test_a_graph_without_repeated_initialisers_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / MODEL_FILE
    save_branches(path, first=[1.0], second=[3.0])
    before = path.stat().st_mtime_ns
    drop_repeated_initializers(path)
    assert path.stat().st_mtime_ns == before
