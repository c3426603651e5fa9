"""The indices that come with a batch say the same as those that a graph computes."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.architectures.build import build_graph
from vecmill.directory_layouts import describe_model
from vecmill.engines.indices import BatchShape, index_batch
from vecmill.graphs.batch_layout import IndexedLayout, RaggedLayout
from vecmill.graphs.finish import write_graph
from vecmill.models import locate_model
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import Batch, TokenSequence

SEED = 5
LENGTHS = [3, 17, 1, 9, 40]


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> dict[type, onnxruntime.InferenceSession]:
    folder = tmp_path_factory.mktemp("graphs")
    description = describe_model(locate_model(save_tiny_bert(folder / "model", TinyBert())))
    opened: dict[type, onnxruntime.InferenceSession] = {}
    for layout in (RaggedLayout, IndexedLayout):
        path = folder / f"{layout.__name__}.onnx"
        write_graph(build_graph(description, layout), path)
        opened[layout] = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return opened


def batch_of(lengths: list[int]) -> Batch:
    random = np.random.default_rng(SEED)
    return Batch.of([TokenSequence.of(random.integers(5, 500, length).tolist()) for length in lengths])


def run_indexed(session: onnxruntime.InferenceSession, batch: Batch, shape: BatchShape) -> FloatArray:
    inputs = index_batch(batch, shape)
    rows: FloatArray = session.run(None, {found.name: inputs[found.name] for found in session.get_inputs()})[
        0
    ]
    return rows


@pytest.mark.parametrize("rounding", [(1, 1, 1), (8, 1, 8), (64, 8, 16)])
def test_rows_are_those_of_the_ragged_graph_however_shapes_are_rounded(
    sessions: dict[type, onnxruntime.InferenceSession], tmp_path: Path, rounding: tuple[int, int, int]
) -> None:
    batch, ragged = batch_of(LENGTHS), sessions[RaggedLayout]
    feed = {found.name: getattr(batch, found.name) for found in ragged.get_inputs()}
    positions, texts, longest = rounding
    shape = BatchShape.of(batch).rounded(positions=positions, texts=texts, longest=longest)
    rows = run_indexed(sessions[IndexedLayout], batch, shape)
    assert rows.shape[0] == shape.texts
    assert np.isfinite(rows).all(), "what fills the gap is harmless"
    np.testing.assert_allclose(rows[: len(batch)], ragged.run(None, feed)[0], atol=1e-6)


def test_extents_round_up_to_multiples() -> None:
    shape = BatchShape.of(batch_of(LENGTHS))
    assert shape == BatchShape(positions=70, texts=5, longest=40)
    assert shape.rounded(positions=16, texts=4, longest=8) == BatchShape(80, 8, 40)


@pytest.mark.parametrize("room", [BatchShape(69, 5, 40), BatchShape(70, 4, 40), BatchShape(70, 5, 39)])
def test_a_batch_that_does_not_fit_is_refused(room: BatchShape) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        index_batch(batch_of(LENGTHS), room)
