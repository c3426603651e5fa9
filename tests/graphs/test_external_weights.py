"""Everything that ONNX Runtime stores begins at a multiple of 64 bytes, and is what it was."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from vecmill.engines.onnx import _store
from vecmill.engines.prepared import MODEL_FILE, WEIGHTS_FILE, BuiltGraph
from vecmill.graphs import external_data
from vecmill.graphs.external_data import ALIGNMENT_BYTES, align_weights, stored_offsets
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
    _store(BuiltGraph(plain), folder)


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
