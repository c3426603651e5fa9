"""Weights in blocks of 8 bits: near what was published, made without texts, and with little memory."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

from support.rows_check import batch_plans
from support.texts import mixed_texts
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.directory_layouts import describe_model
from vecmill.engines import load_engine, load_exact_engine
from vecmill.engines.base import Engine
from vecmill.engines.onnx.engine import OnnxEngine
from vecmill.errors import UnsupportedModel
from vecmill.models import ModelDescription, locate_model
from vecmill.quantization import calibration
from vecmill.quantization.block_weights import BLOCK_INPUTS, round_blocks
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.engine_plan import EnginePlan, Precision
from vecmill.verification.comparison import compare_embeddings

SEED = 11
LAYERS = 2
BLOCKS = EnginePlan("onnx", Precision.INT8_BLOCKS)

needs_byte_products = pytest.mark.skipif(
    Precision.INT8_BLOCKS not in OnnxEngine.find_capabilities().devices["cpu"],
    reason="no int8 on this processor",
)


def describe(folder: Path, *, hidden: int = 64) -> ModelDescription:
    config = {"hidden_size": hidden, "intermediate_size": 2 * hidden, "num_hidden_layers": LAYERS}
    return describe_model(locate_model(save_tiny_bert(folder, TinyBert(config=config))))


def compute(engine: Engine, sequences: list[TokenSequence], plan: list[list[int]]) -> FloatArray:
    rows = np.empty((len(sequences), engine.info.dim), np.float32)
    for indices in plan:
        rows[indices] = engine.run(Batch.of([sequences[index] for index in indices]), width=1).values
    return rows


def test_a_weight_is_off_by_half_a_step_at_most() -> None:
    weight = np.random.default_rng(SEED).standard_normal((5, 3 * BLOCK_INPUTS), np.float32)
    weight[1] = 0
    weight[2, :BLOCK_INPUTS] *= 1e6  # a large block does not touch its neighbours
    values, scales = round_blocks(weight)
    restored = (values.astype(np.float32) - 128) * scales[..., None]
    errors = np.abs(restored - weight.reshape(values.shape))
    assert (errors <= 0.51 * scales[..., None]).all()
    assert values.min() >= 1


@needs_byte_products
def test_rows_are_near_and_do_not_depend_on_company(tmp_path: Path) -> None:
    description = describe(tmp_path / "model")
    sequences = Tokenizer.load(description).encode(mixed_texts(SEED, 40))
    plans = batch_plans([len(one) for one in sequences], SEED)
    exact = load_exact_engine(description, cores=1)
    small = load_engine(description, BLOCKS, cores=2, cache_dir=tmp_path / "cache")
    expected, alone = (compute(engine, sequences, plans["alone"]) for engine in (exact, small))
    assert compare_embeddings(alone, expected).cosine_min > 0.99
    assert np.abs(alone - expected).max() > 1e-5, "int8 was asked for, fp32 computed"
    for plan in plans.values():
        np.testing.assert_allclose(compute(small, sequences, plan), alone, atol=1e-4)
    exact.close()
    small.close()


@needs_byte_products
def test_all_linear_layers_have_blocks_and_no_text_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "observe_inputs", None)
    description = describe(tmp_path / "model")
    load_engine(description, BLOCKS, cores=1, cache_dir=tmp_path / "cache").close()
    (stored,) = (tmp_path / "cache").glob("*-int8-blocks-*/model.onnx")
    graph = onnx.load(stored, load_external_data=False).graph
    operators = Counter(node.op_type for node in graph.node)
    # Queries, keys and values in one, the output of attention, and two of the feed-forward part.
    assert (operators["MatMulNBits"], operators["Gemm"]) == (4 * LAYERS, 0)


@needs_byte_products
def test_a_model_without_blocks_is_refused(tmp_path: Path) -> None:
    description = describe(tmp_path / "model", hidden=24)
    with pytest.raises(UnsupportedModel, match="int8-blocks"):
        load_engine(description, BLOCKS, cores=1, cache_dir=tmp_path / "cache")
