"""The indices that come with a batch say the same as those that a graph computes."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.engines.indices import Extent, index_batch
from vecmill.graphs.build import build_graph, write_graph
from vecmill.graphs.layout import IndexedLayout, RaggedLayout
from vecmill.models import describe_model, locate_model
from vecmill.types import Batch, FloatArray, TokenSequence

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


def run_indexed(session: onnxruntime.InferenceSession, batch: Batch, extent: Extent) -> FloatArray:
    inputs = index_batch(batch, extent)
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
    extent = Extent.of(batch).rounded(positions=positions, texts=texts, longest=longest)
    rows = run_indexed(sessions[IndexedLayout], batch, extent)
    assert rows.shape[0] == extent.texts
    assert np.isfinite(rows).all(), "what fills the gap is harmless"
    np.testing.assert_allclose(rows[: len(batch)], ragged.run(None, feed)[0], atol=1e-6)


def test_extents_round_up_to_multiples() -> None:
    extent = Extent.of(batch_of(LENGTHS))
    assert extent == Extent(positions=70, texts=5, longest=40)
    assert extent.rounded(positions=16, texts=4, longest=8) == Extent(80, 8, 40)


@pytest.mark.parametrize("room", [Extent(69, 5, 40), Extent(70, 4, 40), Extent(70, 5, 39)])
def test_a_batch_that_does_not_fit_is_refused(room: Extent) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        index_batch(batch_of(LENGTHS), room)
