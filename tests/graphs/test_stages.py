"""Pooling by hand: what is counted, what is left out, and what is left when nothing is."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from vecmill.graphs.batch_layout import RaggedLayout
from vecmill.graphs.ops import Ops
from vecmill.graphs.stages import normalize, pool
from vecmill.models import Pooling, PoolingMode
from vecmill.values.aliases import FloatArray

# Token t of the batch has the row (t, t * t), so every mean tells which tokens went into it.
LENGTHS = (3, 1, 4)
TOKENS = np.arange(1, sum(LENGTHS) + 1, dtype=np.float32)
ROWS = np.stack([TOKENS, TOKENS**2], axis=1)
TEXTS = np.split(ROWS, np.cumsum(LENGTHS)[:-1])


def run_pooling(pooling: Pooling, prompt_lengths: Sequence[int], *, unit: bool = False) -> FloatArray:
    op = Ops()
    layout = RaggedLayout(op)
    ids = op.Unsqueeze(op.Cast(layout.token_ids, to=ir.DataType.FLOAT), op.constant([1]))
    rows = pool(op, layout, op.Concat(ids, op.Mul(ids, ids), axis=1), pooling)
    model = op.model(normalize(op, rows) if unit else rows, "rows", ["texts", 2])
    session = onnxruntime.InferenceSession(
        ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    feed = {
        "token_ids": TOKENS.astype(np.int64),
        "token_type_ids": np.zeros(len(TOKENS), np.int64),
        "offsets": np.cumsum([0, *LENGTHS]),
        "prompt_lengths": np.array(prompt_lengths, np.int64),
    }
    return np.asarray(session.run(["rows"], feed)[0])


@pytest.mark.parametrize("prompt_lengths", [(0, 0, 0), (2, 1, 3)])
def test_the_mean_of_all_tokens(prompt_lengths: Sequence[int]) -> None:
    expected = [rows.mean(axis=0) for rows in TEXTS]
    assert np.allclose(run_pooling(Pooling((PoolingMode.MEAN,)), prompt_lengths), expected)


@pytest.mark.parametrize("prompt_lengths", [(0, 0, 0), (2, 0, 1), (1, 0, 3)])
def test_the_mean_without_the_prompt(prompt_lengths: Sequence[int]) -> None:
    expected = [rows[start:].mean(axis=0) for rows, start in zip(TEXTS, prompt_lengths, strict=True)]
    found = run_pooling(Pooling((PoolingMode.MEAN,), include_prompt=False), prompt_lengths)
    assert np.allclose(found, expected)


@pytest.mark.parametrize("unit", [False, True])
def test_the_mean_of_nothing_is_zero(unit: bool) -> None:
    found = run_pooling(Pooling((PoolingMode.MEAN,), include_prompt=False), (3, 5, 4), unit=unit)
    assert np.array_equal(found, np.zeros((3, 2)))


@pytest.mark.parametrize("prompt_lengths", [(0, 0, 0), (2, 1, 3)])
def test_the_first_token(prompt_lengths: Sequence[int]) -> None:
    expected = [rows[0] for rows in TEXTS]
    assert np.array_equal(run_pooling(Pooling((PoolingMode.CLS,)), prompt_lengths), expected)


def test_the_first_token_after_the_prompt_or_else_the_first() -> None:
    found = run_pooling(Pooling((PoolingMode.CLS,), include_prompt=False), (2, 1, 9))
    assert np.array_equal(found, [TEXTS[0][2], TEXTS[1][0], TEXTS[2][0]])


def test_normalized_rows_have_unit_length() -> None:
    found = run_pooling(Pooling((PoolingMode.MEAN,)), (0, 0, 0), unit=True)
    assert np.allclose(np.linalg.norm(found, axis=1), 1)
