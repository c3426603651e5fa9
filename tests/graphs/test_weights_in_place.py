"""Weights stay in the files of the model, and tables stay in 16 bits; no output changes by a bit."""

from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - registers bfloat16 with numpy
import numpy as np
import onnx
import pytest
import safetensors.numpy

from support.pytorch_files import save_with_torch
from support.texts import mixed_texts
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.architectures.build import build_graph
from vecmill.directory_layouts import describe_model
from vecmill.engines import load_engine, load_exact_engine
from vecmill.engines.base import Engine
from vecmill.graphs.external_data import SerializedGraph, serialize_graph
from vecmill.graphs.ops import Kept
from vecmill.models import ModelDescription, locate_model
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import Batch
from vecmill.values.engine_plan import EnginePlan

SEED = 7
LAYERS, HIDDEN = 2, 32
JOINED_BYTES = 4 * LAYERS * 3 * (HIDDEN * HIDDEN + HIDDEN)  # queries, keys and values of each layer in one
DTYPES = ("float32", "float16", "bfloat16")
SETTINGS = {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS}


def describe(folder: Path, dtype: str) -> ModelDescription:
    return describe_model(locate_model(save_tiny_bert(folder, TinyBert(dtype=dtype, config=SETTINGS))))


def as_pickle(description: ModelDescription) -> ModelDescription:
    """Replace the weights of a model by a PyTorch file of the same values."""
    import torch

    (weights,) = description.weights_files
    tensors = {
        name: torch.from_numpy(values.astype(np.float32)).to(torch.bfloat16)
        for name, values in safetensors.numpy.load_file(weights).items()
    }
    save_with_torch(description.directory / "pytorch_model.bin", tensors)
    weights.unlink()
    return describe_model(locate_model(description.directory))


def compute(engine: Engine, description: ModelDescription) -> FloatArray:
    sequences = Tokenizer.load(description).encode(mixed_texts(SEED, 12))
    rows: FloatArray = engine.run(Batch.of(sequences), width=engine.info.lane_widths[0]).values
    engine.close()
    return rows


def initializers(graph: SerializedGraph) -> dict[str, Any]:
    return {tensor.name: tensor for tensor in onnx.ModelProto.FromString(graph.graph).graph.initializer}


def widen(folder: Path) -> ModelDescription:
    """Return the same model with its weights in fp32."""
    description = describe_model(locate_model(folder))
    (weights,) = description.weights_files
    tensors = safetensors.numpy.load_file(weights)
    safetensors.numpy.save_file({name: one.astype(np.float32) for name, one in tensors.items()}, weights)
    return describe_model(locate_model(folder))


@pytest.mark.parametrize("dtype", DTYPES)
def test_tables_in_16_bits_change_no_output(tmp_path: Path, dtype: str) -> None:
    """The prepared graph keeps the tables, the one for comparisons all weights; the third has fp32 files."""
    description = describe(tmp_path / "model", dtype)
    found = [
        compute(load_engine(description, EnginePlan(), cores=1, cache_dir=tmp_path / "cache"), description),
        compute(load_exact_engine(description, cores=1), description),
    ]
    wide = widen(tmp_path / "model")
    expected = compute(load_engine(wide, EnginePlan(), cores=1, cache_dir=tmp_path / "wide"), wide)
    assert np.array_equal(found[0], expected)
    np.testing.assert_allclose(found[1], expected, rtol=0, atol=1e-6)  # another order of the same sums


def test_a_prepared_table_has_the_bits_of_the_file(tmp_path: Path) -> None:
    description = describe(tmp_path / "model", "bfloat16")
    load_engine(description, EnginePlan(), cores=1, cache_dir=tmp_path / "cache").close()
    (stored,) = (tmp_path / "cache").glob("*/model.onnx")
    kinds = {one.data_type for one in onnx.load(stored, load_external_data=False).graph.initializer}
    assert onnx.TensorProto.BFLOAT16 in kinds


@pytest.mark.parametrize("is_pickle", [False, True], ids=["safetensors", "pytorch"])
def test_only_joined_matrices_are_written(tmp_path: Path, *, is_pickle: bool) -> None:
    description = describe(tmp_path / "model", "float32")
    if is_pickle:
        description = as_pickle(description)
    kept = Kept.EVERYTHING if is_pickle else Kept.NOTHING
    made = tmp_path / "made"
    graph = serialize_graph(build_graph(description, kept=kept), made)
    assert made.stat().st_size == JOINED_BYTES
    assert graph.published == description.weights_files
    for name, tensor in initializers(graph).items():
        places = {entry.key: entry.value for entry in tensor.external_data}
        assert not places or "query_key_value" in name or places["location"].startswith("published:"), name


def test_a_pytorch_file_gives_the_same_rows_from_where_it_is(tmp_path: Path) -> None:
    description = describe(tmp_path / "model", "bfloat16")
    expected = compute(load_exact_engine(description, cores=1), description)
    pickled = as_pickle(description)
    assert np.array_equal(compute(load_exact_engine(pickled, cores=1), pickled), expected)


def test_a_model_for_comparisons_writes_nothing(tmp_path: Path) -> None:
    description = describe(tmp_path / "model", "float16")
    before = sorted(tmp_path.rglob("*"))
    load_exact_engine(description, cores=1).close()
    assert sorted(tmp_path.rglob("*")) == before


def test_weights_that_are_not_aligned_are_written(tmp_path: Path) -> None:
    """A header of odd length is allowed; a runtime may not be able to read floats at odd addresses."""
    description = describe(tmp_path / "model", "float32")
    (weights,) = description.weights_files
    content = weights.read_bytes()
    size = int.from_bytes(content[:8], "little")
    weights.write_bytes((size + 1).to_bytes(8, "little") + content[8 : 8 + size] + b" " + content[8 + size :])
    graph = serialize_graph(build_graph(describe_model(locate_model(tmp_path / "model"))))
    assert graph.published == ()
