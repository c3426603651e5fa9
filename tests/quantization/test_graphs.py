"""int8 graphs: near to fp32, the same whoever shares the batch, and refused where they would be wrong."""

import logging
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from support.rows_check import batch_plans
from support.texts import mixed_texts
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.architectures.build import build_graph
from vecmill.directory_layouts import describe_model
from vecmill.engines import load_engine
from vecmill.engines.base import Engine
from vecmill.errors import UnsupportedModel
from vecmill.graphs.external_data import serialize_graph
from vecmill.hardware.processor import multiplies_bytes
from vecmill.models import ModelDescription, locate_model
from vecmill.quantization import calibration, rounding
from vecmill.quantization.calibration import calibration_sequences
from vecmill.quantization.rewriting import quantize_graph
from vecmill.quantization.selection import find_matrices
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.engine_plan import EnginePlan, Precision
from vecmill.verification.comparison import compare_embeddings

SEED = 17
LAYERS = 2
WIDE = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": LAYERS}
EIGHT_BITS = (Precision.INT8, Precision.INT8_FAST)
MASK_TOKEN = 4  # which no text has

needs_byte_products = pytest.mark.skipif(
    not multiplies_bytes(), reason="this processor does not multiply bytes"
)


def describe(folder: Path) -> ModelDescription:
    return describe_model(locate_model(save_tiny_bert(folder, TinyBert(config=WIDE))))


@pytest.fixture(scope="module")
def description(tmp_path_factory: pytest.TempPathFactory) -> ModelDescription:
    return describe(tmp_path_factory.mktemp("models") / "tiny")


def load(description: ModelDescription, precision: Precision, cache_dir: Path) -> Engine:
    return load_engine(description, EnginePlan("onnx", precision), cores=2, cache_dir=cache_dir)


def compute(engine: Engine, sequences: list[TokenSequence], plan: list[list[int]]) -> FloatArray:
    rows = np.empty((len(sequences), engine.info.dim), np.float32)
    for indices in plan:
        rows[indices] = engine.run(Batch.of([sequences[index] for index in indices]), width=1).values
    return rows


def operators(description: ModelDescription, precision: Precision, folder: Path) -> Counter[str]:
    plain = serialize_graph(build_graph(description), folder / "plain.weights")
    graph = build_graph(description)
    quantize_graph(graph, plain, precision, calibration_sequences(description))
    return Counter(node.op_type for node in graph.graph)


@needs_byte_products
@pytest.mark.parametrize("precision", EIGHT_BITS)
def test_rows_are_near_and_do_not_depend_on_company(
    description: ModelDescription, precision: Precision, tmp_path: Path
) -> None:
    sequences = Tokenizer.load(description).encode(mixed_texts(SEED, 40))
    plans = batch_plans([len(one) for one in sequences], SEED)
    exact, small = (load(description, one, tmp_path) for one in (Precision.FP32, precision))
    expected, alone = (compute(engine, sequences, plans["alone"]) for engine in (exact, small))
    assert compare_embeddings(alone, expected).cosine_min > 0.99
    assert np.abs(alone - expected).max() > 1e-5, "int8 was asked for, fp32 computed"
    for plan in plans.values():
        np.testing.assert_allclose(compute(small, sequences, plan), alone, atol=1e-4)
    for engine in (exact, small):
        engine.close()


def test_int8_leaves_queries_keys_and_values_as_they_are(
    description: ModelDescription, tmp_path: Path
) -> None:
    careful, fast = (operators(description, precision, tmp_path) for precision in EIGHT_BITS)
    # Of a layer: queries, keys and values in one, the output of attention, and two of the feed-forward part.
    assert (fast["MatMulIntegerToFloat"], fast["Gemm"]) == (4 * LAYERS, 0)
    assert (careful["MatMulIntegerToFloat"], careful["Gemm"]) == (3 * LAYERS, LAYERS)


def test_calibration_writes_the_joined_matrices_alone(description: ModelDescription, tmp_path: Path) -> None:
    operators(description, Precision.INT8, tmp_path)
    joined = LAYERS * 3 * 4 * (64 * 64 + 64)  # queries, keys and values of each layer in one, float32
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == {"plain.weights": joined}


def test_groups_that_fit_into_memory_give_what_all_at_once_gives(
    description: ModelDescription, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = serialize_graph(build_graph(description))
    sequences = calibration_sequences(description)
    matrices = find_matrices(build_graph(description).graph)

    def observe() -> list[FloatArray]:
        return [known.products for _, known in calibration.observe_inputs(plain, matrices, sequences)]

    whole = observe()
    monkeypatch.setattr(calibration, "_MOST_BYTES", 4 * 64**2)
    for one, other in zip(whole, observe(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_a_long_prompt_leaves_texts_to_calibrate_with(tmp_path: Path) -> None:
    model = TinyBert(
        prompts={"query": "word " * 300},
        default_prompt_name="query",
        max_seq_length=512,
        config={"max_position_embeddings": 512},
    )
    long = describe_model(locate_model(save_tiny_bert(tmp_path / "model", model)))
    sequences = calibration_sequences(long)
    assert len(sequences) == calibration._TEXTS_AT_ONCE
    assert min(map(len, sequences)) > calibration._MOST_TOKENS


def test_no_linear_layer_is_a_refusal(tmp_path: Path) -> None:
    narrow = describe_model(locate_model(save_tiny_bert(tmp_path / "model")))
    with pytest.raises(UnsupportedModel, match="no linear layers that can be quantised to int8"):
        operators(narrow, Precision.INT8, tmp_path)


def test_weights_that_are_no_numbers_are_a_refusal(tmp_path: Path) -> None:
    spoilt = describe(tmp_path / "model")
    tensors = safetensors.numpy.load_file(spoilt.weights_files[0])
    tensors["embeddings.LayerNorm.bias"][0] = np.inf
    safetensors.numpy.save_file(tensors, spoilt.weights_files[0])
    with pytest.raises(UnsupportedModel, match=r"cannot be quantised to int8: .* not finite"):
        operators(spoilt, Precision.INT8, tmp_path)


@needs_byte_products
@pytest.mark.parametrize("precision", EIGHT_BITS)
def test_nan_stays_nan_and_with_its_text(precision: Precision, tmp_path: Path) -> None:
    spoilt = describe(tmp_path / "model")
    tensors = safetensors.numpy.load_file(spoilt.weights_files[0])
    tensors["embeddings.word_embeddings.weight"][MASK_TOKEN] = np.nan
    safetensors.numpy.save_file(tensors, spoilt.weights_files[0])
    engine = load(spoilt, precision, tmp_path / "cache")
    batch = Batch.of([TokenSequence.of(ids) for ids in ([2, 9, 3], [2, MASK_TOKEN, 3], [2, 9, 9, 3])])
    rows = engine.run(batch, width=1).values
    engine.close()
    assert np.isnan(rows).any(axis=1).tolist() == [False, True, False]


def test_what_takes_long_says_how_far_it_is(
    description: ModelDescription,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(rounding, "_PROGRESS_S", -1.0)
    with caplog.at_level(logging.INFO):
        operators(description, Precision.INT8, tmp_path)
    assert caplog.messages[-1] == f"int8: {3 * LAYERS} of {3 * LAYERS} matrices are quantised."
