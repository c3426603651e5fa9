"""Flash attention gives the numbers of softmax attention, whichever keys a query attends to most."""

from functools import cache
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from support.graph_session import open_graph
from vecmill.graphs.batch_layout import Heads, LayoutOptions, RaggedLayout
from vecmill.graphs.flash_attention import BLOCK_QUERIES, FlashAttention
from vecmill.graphs.ops import FLASH_OPERATOR, Ops
from vecmill.values.aliases import FloatArray

SEED = 20_261_126
DIM, SHARED = 8, 2
SCALE = DIM**-0.5
TOLERANCE = 2e-6
LENGTHS = (1, 2, BLOCK_QUERIES, BLOCK_QUERIES + 1, 3 * BLOCK_QUERIES - 1, 700)


@cache
def open_session(heads: int, *, causal: bool) -> onnxruntime.InferenceSession:
    """A session of the graph on one thread."""
    op = Ops(runtime_operators=(FLASH_OPERATOR,))
    layout = RaggedLayout(op, LayoutOptions(has_long=True))
    widths = (heads, SHARED, SHARED)
    query, key, value = (
        op.input(name, ["rows", width * DIM], ir.DataType.FLOAT)
        for name, width in zip(("query", "key", "value"), widths, strict=True)
    )
    flash = FlashAttention(
        query, key, value, Heads(0, heads, heads, DIM), Heads(0, SHARED, SHARED, DIM), SCALE
    )
    attended = flash.attend_before(op, layout) if causal else flash.attend_all(op)
    model = op.model(attended, "rows", ["rows", heads * DIM])
    return open_graph(model)


def compute(parts: list[FloatArray], heads: int, *, causal: bool) -> FloatArray:
    """Attended values by the graph, (tokens, heads * DIM), of (tokens, heads or SHARED, DIM)."""
    session = open_session(heads, causal=causal)
    names, rows_of = ("query", "key", "value"), [part.reshape(len(part), -1) for part in parts]
    feed: dict[str, Any] = dict(zip(names, rows_of, strict=True))
    feed["offsets"] = np.array([0, len(parts[0])])
    given = {found.name for found in session.get_inputs()}
    unread = np.zeros(len(parts[0]), np.int64)
    rows: FloatArray = session.run(None, {name: feed.get(name, unread) for name in given})[0]
    return rows


def expected(parts: list[FloatArray], heads: int, *, causal: bool) -> FloatArray:
    """The same in double precision."""
    query, key, value = (part.astype(np.float64).transpose(1, 0, 2) for part in parts)
    key, value = (part.repeat(heads // SHARED, axis=0) for part in (key, value))
    scores = query @ key.transpose(0, 2, 1) * SCALE
    if causal:
        scores += np.triu(np.full(scores.shape[1:], -np.inf), 1)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    rows = weights / weights.sum(-1, keepdims=True) @ value
    by_token: FloatArray = rows.transpose(1, 0, 2).reshape(len(parts[0]), -1).astype(np.float32)
    return by_token


def draw(length: int, heads: int, factor: float) -> list[FloatArray]:
    """Queries, keys and values whose scores have about this standard deviation."""
    random = np.random.default_rng(SEED + length)
    query, key, value = (
        random.standard_normal((length, count, DIM), np.float32) for count in (heads, SHARED, SHARED)
    )
    return [query * np.float32(factor), key, value]


@pytest.mark.promise("reference-embeddings")
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("heads", [2, 6])
@pytest.mark.parametrize("factor", [0.01, 1, 30])
def test_values_are_those_of_softmax_attention(factor: float, heads: int, causal: bool) -> None:
    for length in LENGTHS:
        parts = draw(length, heads, factor)
        found = compute(parts, heads, causal=causal)
        difference = float(np.abs(found - expected(parts, heads, causal=causal)).max())
        assert difference <= TOLERANCE * max(factor, 1), f"{length} tokens are off by {difference:.1e}"


@pytest.mark.promise("reference-embeddings")
@pytest.mark.parametrize("far", [-60.0, 60.0], ids=["only its own block", "only keys before its block"])
def test_a_query_may_attend_to_one_part_alone(far: float) -> None:
    parts = draw(3 * BLOCK_QUERIES, SHARED, 1)
    parts[0][..., 0] = 10
    parts[1][: 2 * BLOCK_QUERIES, :, 0] = far
    found = compute(parts, SHARED, causal=True)
    assert np.abs(found - expected(parts, SHARED, causal=True)).max() <= 50 * TOLERANCE


def test_a_value_that_is_no_number_is_never_lost() -> None:
    parts = draw(300, SHARED, 1)
    parts[2][5] = np.nan
    assert np.isnan(compute(parts, SHARED, causal=True)[5:]).all()
