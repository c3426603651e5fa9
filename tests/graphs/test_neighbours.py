"""A token's neighbours are those of its own text, in every layout of a batch."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from support.graph_session import open_graph
from vecmill.graphs.batch_layout import IndexedLayout, Layout, RaggedLayout
from vecmill.graphs.finish import drop_unused
from vecmill.graphs.ops import Ops
from vecmill.graphs.shared_layout import SharedLayout
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.positions import BatchShape, Positions, index_batch

SEED = 11
# A model that looks ahead shares no positions.
DISTANCES = {
    RaggedLayout: (-5, -2, -1, 1, 3),
    IndexedLayout: (-5, -2, -1, 1, 3),
    SharedLayout: (-5, -2, -1),
}
CASES = [(layout, distance) for layout, distances in DISTANCES.items() for distance in distances]
ROUNDINGS = ((1, 1, 1), (8, 1, 8), (64, 8, 16))


def open_session(layout_class: type[Layout], distance: int) -> onnxruntime.InferenceSession:
    """A graph that reads the neighbour's id of each token, and 0 where there is none."""
    op = Ops()
    layout = layout_class(op)
    ids = op.Cast(op.Unsqueeze(layout.token_ids, op.constant([1])), to=ir.DataType.FLOAT)
    found = layout.find_neighbours(distance).read(op, ids)
    return open_graph(drop_unused(op.model(found, "rows", ["rows", 1])))


def draw_batch(seed: int) -> Batch:
    """Texts of few ids, so that beginnings are often equal."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 12, random.integers(1, 9))
    return Batch.of([TokenSequence.of(random.integers(1, 4, length).tolist()) for length in lengths])


def expected_ids(batch: Batch, distance: int) -> list[int]:
    texts = np.split(batch.token_ids, batch.offsets[1:-1])
    return [
        int(text[slot + distance]) if 0 <= slot + distance < len(text) else 0
        for text in texts
        for slot in range(len(text))
    ]


def run(
    session: onnxruntime.InferenceSession, batch: Batch, shares: bool, rounding: Sequence[int]
) -> FloatArray:
    """The rows of all tokens, (tokens,)."""
    names = [found.name for found in session.get_inputs()]
    if "offsets" in names:
        rows = session.run(None, {name: getattr(batch, name) for name in names})[0]
        return np.asarray(rows[:, 0], np.float32)
    positions = Positions.of(batch, shares_prefixes=shares)
    sizes = dict(zip(("positions", "texts", "longest"), rounding, strict=True))
    shape = BatchShape.of(batch, positions).rounded(**sizes)
    rows = session.run(None, index_batch(batch, positions, shape, names))[0]
    assert len(rows) == shape.positions
    return np.asarray(rows[positions.of_tokens, 0], np.float32)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize(("layout_class", "distance"), CASES)
def test_neighbours_are_those_in_the_text(
    layout_class: type[Layout], distance: int, rounding: Sequence[int]
) -> None:
    session = open_session(layout_class, distance)
    for seed in range(SEED, SEED + 40):
        batch = draw_batch(seed)
        found = run(session, batch, layout_class is SharedLayout, rounding)
        assert found.tolist() == expected_ids(batch, distance), f"seed {seed}"


def test_shared_positions_have_no_tokens_after_them() -> None:
    with pytest.raises(ValueError, match="may go on differently"):
        SharedLayout(Ops()).find_neighbours(1)
