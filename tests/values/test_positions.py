"""The indices that come with a batch say the same as those that a graph computes."""

from collections.abc import Iterator

import numpy as np
import onnxruntime
import pytest

from support.graph_session import open_graph
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.architectures.build import build_graph
from vecmill.directory_layouts import describe_model
from vecmill.graphs.batch_layout import IndexedLayout, RaggedLayout
from vecmill.models import locate_model
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import Output
from vecmill.values.positions import BatchShape, Positions, index_batch

SEED = 5
LENGTHS = [3, 17, 1, 9, 40]


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> dict[type, onnxruntime.InferenceSession]:
    folder = tmp_path_factory.mktemp("graphs")
    description = describe_model(locate_model(save_tiny_bert(folder / "model", TinyBert())))
    return {layout: open_graph(build_graph(description, layout)) for layout in (RaggedLayout, IndexedLayout)}


def batch_of(lengths: list[int]) -> Batch:
    random = np.random.default_rng(SEED)
    return Batch.of([TokenSequence.of(random.integers(5, 500, length).tolist()) for length in lengths])


def shape_of(batch: Batch) -> BatchShape:
    return BatchShape.of(batch, Positions.of(batch, shares_prefixes=False))


def run_indexed(session: onnxruntime.InferenceSession, batch: Batch, shape: BatchShape) -> FloatArray:
    names = [found.name for found in session.get_inputs()]
    inputs = index_batch(batch, Positions.of(batch, shares_prefixes=False), shape, names)
    rows: FloatArray = session.run(None, inputs)[0]
    return rows


@pytest.mark.parametrize("rounding", [(1, 1, 1), (8, 1, 8), (64, 8, 16)])
def test_rows_are_those_of_the_ragged_graph_however_shapes_are_rounded(
    sessions: dict[type, onnxruntime.InferenceSession], rounding: tuple[int, int, int]
) -> None:
    batch, ragged = batch_of(LENGTHS), sessions[RaggedLayout]
    feed = {found.name: getattr(batch, found.name) for found in ragged.get_inputs()}
    positions, texts, longest = rounding
    shape = shape_of(batch).rounded(positions=positions, texts=texts, longest=longest)
    rows = run_indexed(sessions[IndexedLayout], batch, shape)
    assert rows.shape[0] == shape.texts
    assert np.isfinite(rows).all(), "what fills the gap is harmless"
    np.testing.assert_allclose(rows[: len(batch)], ragged.run(None, feed)[0], atol=1e-6)


def test_extents_round_up_to_multiples() -> None:
    shape = shape_of(batch_of(LENGTHS))
    assert shape == BatchShape(positions=70, texts=5, longest=40, rows=5, width=40)
    rounded = BatchShape(positions=80, texts=8, longest=48, rows=8, width=48)
    assert shape.rounded(positions=16, texts=4, longest=16) == rounded


FITTING = {"positions": 70, "texts": 5, "longest": 40, "rows": 5, "width": 40}


@pytest.mark.parametrize(
    "room", [BatchShape(**{**FITTING, name: size - 1}) for name, size in FITTING.items()]
)
def test_a_batch_that_does_not_fit_is_refused(room: BatchShape) -> None:
    batch = batch_of(LENGTHS)
    with pytest.raises(ValueError, match="does not fit"):
        index_batch(batch, Positions.of(batch, shares_prefixes=False), room, ["token_ids"])


def draw_batches(count: int) -> Iterator[Batch]:
    """Batches of two ids, so that prefixes are often equal, and texts too."""
    random = np.random.default_rng(SEED)
    for _ in range(count):
        texts = [random.integers(0, 2, random.integers(1, 9)).tolist() for _ in range(random.integers(1, 9))]
        yield Batch.of([TokenSequence.of(text) for text in texts])


def list_prefixes(batch: Batch) -> list[tuple[int, ...]]:
    """Each token with those before it in its text."""
    texts = np.split(batch.token_ids, batch.offsets[1:-1])
    return [tuple(text[: end + 1].tolist()) for text in texts for end in range(len(text))]


def test_equal_prefixes_share_positions_and_every_token_keeps_what_stands_before_it() -> None:
    for batch in draw_batches(200):
        positions, prefixes = Positions.of(batch, shares_prefixes=True), list_prefixes(batch)
        assert len(positions) == len(set(prefixes))
        assert [prefixes[token] for token in positions.tokens[positions.of_tokens]] == prefixes


def test_there_are_at_least_as_many_positions_as_texts() -> None:
    for count, length in ((2, 1), (4, 3), (3, 3), (40, 30)):
        batch = Batch.of([TokenSequence.of(list(range(length)))] * count)
        positions = Positions.of(batch, shares_prefixes=True)
        assert len(positions) == (length if count <= length else count * length)
        assert (positions.shared == 0).all() == (count > length)


def test_each_position_has_a_query_in_a_row_with_the_keys_of_its_text() -> None:
    for batch in draw_batches(200):
        positions, prefixes = Positions.of(batch, shares_prefixes=True), list_prefixes(batch)
        shape = BatchShape.of(batch, positions).rounded(positions=4, texts=2, longest=3)
        names = ("slot_of_token", "token_of_query", "token_of_key")
        slots, queries, keys = index_batch(batch, positions, shape, names).values()
        assert queries.shape == (shape.rows, shape.width)
        for position, slot in enumerate(slots[: len(positions)].tolist()):
            assert queries.reshape(-1)[slot] == position
            prefix = prefixes[positions.tokens[position]]
            row = keys[slot // shape.width, : len(prefix)]
            assert [prefixes[token] for token in positions.tokens[row]] == [
                prefix[: end + 1] for end in range(len(prefix))
            ]


def test_the_first_text_does_not_set_the_width_of_all_rows() -> None:
    prefix = list(range(200))
    texts = [TokenSequence.of(prefix + [1_000 + text] * 100) for text in range(20)]
    shape = BatchShape.of(batch := Batch.of(texts), Positions.of(batch, shares_prefixes=True))
    assert (shape.rows, shape.width, shape.longest) == (22, 100, 300)


def test_short_texts_do_not_divide_a_long_prefix_into_many_rows() -> None:
    """Each row gathers the keys of its text."""
    texts = [TokenSequence.of([*range(450), *[1_000 + text] * 5]) for text in range(31)]
    batch = Batch.of(texts)
    assert BatchShape.of(batch, Positions.of(batch, shares_prefixes=True)).rows < 1.6 * len(texts)


def test_results_for_single_tokens_share_no_positions() -> None:
    batch = Batch.of(
        [
            TokenSequence.of([1, 2]).asking(Output.HIDDEN_STATES),
            TokenSequence.of([1, 3]).asking(Output.HIDDEN_STATES),
        ]
    )
    assert len(Positions.of(batch, shares_prefixes=True)) == 4
