"""The ragged layout puts every token in its place, and takes it back."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vecmill.graphs.batch_layout import MASKED_SCORE, Heads, RaggedLayout
from vecmill.graphs.ops import Ops

DIM, HEADS = 2, 3
WIDTH = DIM * HEADS


class Probe:
    """One graph that shows everything a layout offers, as floats, over flat projections."""

    def __init__(self) -> None:
        op = Ops()
        layout = RaggedLayout(op)
        ids = op.Cast(layout.token_ids, to=ir.DataType.FLOAT)
        # Column c of token t holds 100 * id + c; three parts of HEADS heads lie side by side.
        columns = op.constant(np.arange(3 * WIDTH), np.float32)
        scaled = op.Mul(op.Unsqueeze(ids, op.constant([1])), op.constant(100, np.float32))
        projected = op.Add(scaled, columns)
        heads = Heads(first=2 * HEADS, count=HEADS, total=3 * HEADS, dim=DIM)
        values = layout.split_heads(projected, heads, layout.token_of_key)
        merged = layout.merge_heads(values, width=WIDTH)
        self.outputs = {
            "positions": op.Cast(layout.token_positions, to=ir.DataType.FLOAT),
            "is_token": op.Cast(layout.is_token, to=ir.DataType.FLOAT),
            "key_bias": layout.key_bias,
            "values": values,
            "merged": merged,
            "by_text": layout.by_text(projected),
            "last": layout.token_at(projected, op.Sub(layout.lengths, op.constant([1]))),
        }
        model = op.model(merged, "merged", ["tokens", WIDTH])
        model.graph.outputs.clear()
        for name, value in self.outputs.items():
            value.name, value.type = name, ir.TensorType(ir.DataType.FLOAT)
            model.graph.outputs.append(value)
        serialized = ir.to_proto(model).SerializeToString()
        self._session = onnxruntime.InferenceSession(serialized, providers=["CPUExecutionProvider"])

    def __call__(self, lengths: Sequence[int]) -> dict[str, Any]:
        ids = np.arange(1, sum(lengths) + 1)
        feed = {
            "token_ids": ids,
            "token_type_ids": np.zeros_like(ids),
            "offsets": np.cumsum([0, *lengths]),
            "prompt_lengths": np.zeros(len(lengths), np.int64),
        }
        inputs = {one.name for one in self._session.get_inputs()}
        results = self._session.run(list(self.outputs), {k: v for k, v in feed.items() if k in inputs})
        return dict(zip(self.outputs, results, strict=True))


@pytest.fixture(scope="module")
def probe() -> Probe:
    return Probe()


LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=8)


@given(LENGTHS)
def test_tokens_are_padded_and_taken_back(probe: Probe, lengths: list[int]) -> None:
    found = probe(lengths)
    longest = max(lengths)
    ids = np.split(np.arange(1, sum(lengths) + 1), np.cumsum(lengths)[:-1])
    flat = 100 * np.concatenate(ids)[:, None] + np.arange(3 * WIDTH)
    assert found["positions"].tolist() == [place for length in lengths for place in range(length)]
    assert np.array_equal(found["merged"], flat[:, 2 * WIDTH :])
    for text, own in enumerate(ids):
        filled = np.concatenate([own, np.repeat(own[-1], longest - len(own))])
        rows = 100 * filled[:, None] + np.arange(3 * WIDTH)
        assert np.array_equal(found["by_text"][text], rows)
        split = rows[:, 2 * WIDTH :].reshape(longest, HEADS, DIM).transpose(1, 0, 2)
        assert np.array_equal(found["values"][text], split)
        assert np.array_equal(found["last"][text], flat[sum(lengths[: text + 1]) - 1])
        assert found["is_token"][text].tolist() == [1] * len(own) + [0] * (longest - len(own))
    assert np.array_equal(
        found["key_bias"][:, 0, 0], np.where(found["is_token"] > 0, 0, np.float32(MASKED_SCORE))
    )


def test_a_masked_key_weighs_nothing() -> None:
    scores = np.array([80.0, -80.0, 80.0], np.float32) + np.array([0, 0, MASKED_SCORE], np.float32)
    assert np.exp(scores - scores.max())[2] == 0
