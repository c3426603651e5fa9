"""Merged weights: whole tensors, their rows and parts, and the names that base and adapter give a tensor."""

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from support.lora_adapters import Lora, write_config
from vecmill.models.adapters import Adapter
from vecmill.models.merged_weights import open_merged
from vecmill.models.weights import Weights
from vecmill.values.aliases import FloatArray

ROWS, WIDTH, RANK, ALPHA = 7, 4, 3, 2.0


def draw(seed: int, *shape: int) -> FloatArray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def open_one(folder: Path, stored: str, adapted: str, *, is_table: bool, dtype: str = "float32") -> Weights:
    """One matrix of a base with an adapter."""
    import ml_dtypes  # noqa: F401  # registers bfloat16 with numpy

    safetensors.numpy.save_file({stored: draw(0, ROWS, WIDTH).astype(dtype)}, folder / "model.safetensors")
    names = ("lora_embedding_A", "lora_embedding_B") if is_table else ("lora_A.weight", "lora_B.weight")
    shapes = ((RANK, ROWS), (WIDTH, RANK)) if is_table else ((RANK, WIDTH), (ROWS, RANK))
    stem = f"base_model.model.{adapted}"
    tensors = {f"{stem}.{name}": draw(1, *shape) for name, shape in zip(names, shapes, strict=True)}
    safetensors.numpy.save_file(tensors, folder / "adapter_model.safetensors")
    config = write_config(Lora((), rank=RANK, alpha=ALPHA), "owner/base")
    (folder / "adapter_config.json").write_text(json.dumps(config))
    adapter = Adapter.find(folder)
    assert adapter is not None
    return open_merged(adapter, folder / "model.safetensors")


def expected(*, is_table: bool, dtype: str = "float32") -> FloatArray:
    """W + alpha / rank B A, or its transposed product for a table, in double precision."""
    inputs, outputs = (ROWS, WIDTH) if is_table else (WIDTH, ROWS)
    low, high = draw(1, RANK, inputs), draw(1, outputs, RANK)
    product = high.astype(np.float64) @ low
    base = draw(0, ROWS, WIDTH).astype(dtype).astype(np.float64)
    return np.asarray(base + ALPHA / RANK * (product.T if is_table else product), np.float32)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("is_table", [False, True])
def test_a_tensor_its_rows_and_its_parts_are_merged(is_table: bool, dtype: str, tmp_path: Path) -> None:
    weights = open_one(tmp_path, "dense.weight", "dense", is_table=is_table, dtype=dtype)
    whole, shape = expected(is_table=is_table, dtype=dtype), (ROWS, WIDTH)
    np.testing.assert_allclose(weights.tensor("dense.weight", shape).read(), whole, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        weights.rows("dense.weight", shape, [5, 2]).read(), whole[[5, 2]], rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        weights.part("dense.weight", shape, 3, 6).read(), whole[3:6], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    ("stored", "adapted"),
    [("bert.dense.weight", "dense"), ("dense.weight", "bert.dense"), ("bert.dense.weight", "bert.dense")],
)
def test_a_model_with_a_head_and_its_encoder_name_a_tensor_differently(
    stored: str, adapted: str, tmp_path: Path
) -> None:
    weights = open_one(tmp_path, stored, adapted, is_table=False).with_prefix("bert.")
    found = weights.tensor("dense.weight", (ROWS, WIDTH)).read()
    np.testing.assert_allclose(found, expected(is_table=False), rtol=1e-5, atol=1e-6)


def test_only_tensors_that_stay_the_same_have_a_place_in_a_file(tmp_path: Path) -> None:
    """Engines map a tensor from its place, without the adapter."""
    open_one(tmp_path, "dense.weight", "dense", is_table=False)
    other = {"other.weight": draw(5, ROWS, WIDTH), "dense.weight": draw(0, ROWS, WIDTH)}
    safetensors.numpy.save_file(other, tmp_path / "model.safetensors")
    adapter = Adapter.find(tmp_path)
    assert adapter is not None
    weights = open_merged(adapter, tmp_path / "model.safetensors")
    assert weights.tensor("dense.weight", (ROWS, WIDTH)).place is None
    place = weights.tensor("other.weight", (ROWS, WIDTH)).place
    assert place is not None
    np.testing.assert_array_equal(place.map((ROWS, WIDTH)), other["other.weight"])


def test_the_parts_of_a_tensor_have_no_place_but_their_own(tmp_path: Path) -> None:
    """A class may have several tensors where the file has one: then they are its parts."""
    open_one(tmp_path, "dense.weight", "dense", is_table=False)
    joined = draw(5, 2 * ROWS, WIDTH)
    base = {
        "joined.weight": joined,
        "stored.weight": draw(6, ROWS, WIDTH),
        "old.weight": draw(0, ROWS, WIDTH),
    }
    safetensors.numpy.save_file(base, tmp_path / "model.safetensors")
    names = {
        "joined.weight": ("first.weight", "second.weight"),
        "stored.weight": ("whole.weight",),
        "old.weight": ("dense.weight",),
    }
    adapter = Adapter.find(tmp_path)
    assert adapter is not None
    weights = open_merged(adapter, tmp_path / "model.safetensors", rename=names.__getitem__)
    parts = {
        "first.weight": joined[:ROWS],
        "second.weight": joined[ROWS:],
        "whole.weight": base["stored.weight"],
    }
    tensors = {name: weights.tensor(name, (ROWS, WIDTH)) for name in parts}
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(tensor.read(), parts[name])
        if tensor.place is not None:
            np.testing.assert_array_equal(tensor.place.map((ROWS, WIDTH)), parts[name])
    assert tensors["whole.weight"].place is not None
