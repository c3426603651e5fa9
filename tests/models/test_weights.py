"""Tensors come by name and shape, as float32, and broken files are named."""

import json
import os
from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import safetensors.numpy

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.safetensors_file import MAX_TENSORS
from vecmill.models.weights import Weights, concatenate

VALUES = np.arange(6, dtype=np.float32).reshape(2, 3) / 4


def save(path: Path, name: str = "layer.weight", dtype: npt.DTypeLike = np.float32) -> Path:
    safetensors.numpy.save_file({name: VALUES.astype(dtype)}, path)
    return path


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_floats_become_float32(tmp_path: Path, dtype: npt.DTypeLike) -> None:
    tensor = Weights.open(save(tmp_path / "w", dtype=dtype)).tensor("layer.weight", (2, 3))
    values = tensor.read()
    assert values.dtype == np.float32
    assert np.array_equal(values, VALUES)


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ("bert.layer.weight", "layer.weight"),
        ("x.LayerNorm.gamma", "x.LayerNorm.weight"),
        ("bert.x.LayerNorm.beta", "x.LayerNorm.bias"),
    ],
)
def test_other_spellings_are_found(tmp_path: Path, stored: str, asked: str) -> None:
    weights = Weights.open(save(tmp_path / "w", stored)).with_prefix("bert.")
    assert weights.holds(asked)
    assert np.array_equal(weights.tensor(asked, (2, 3)).read(), VALUES)


def test_a_prefix_of_another_family_is_not_looked_under(tmp_path: Path) -> None:
    weights = Weights.open(save(tmp_path / "w", "bert.layer.weight"))
    assert not weights.holds("layer.weight")
    assert not weights.with_prefix("roberta.").holds("layer.weight")


def test_tensors_are_joined_by_rows(tmp_path: Path) -> None:
    tensor = Weights.open(save(tmp_path / "w")).tensor("layer.weight", (2, 3))
    joined = concatenate("both", [tensor, tensor])
    assert joined.shape == (4, 3)
    assert np.array_equal(joined.read(), np.concatenate([VALUES, VALUES]))


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorruptModel, match=r"has no tensor 'layer\.bias'"):
        Weights.open(save(tmp_path / "w")).tensor("layer.bias", (2,))


def test_a_wrong_shape_is_named_with_both(tmp_path: Path) -> None:
    with pytest.raises(
        CorruptModel, match=r"'layer\.weight' has shape \[2, 3\], config\.json asks for \[3, 2\]"
    ):
        Weights.open(save(tmp_path / "w")).tensor("layer.weight", (3, 2))


def test_integers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="holds I8"):
        Weights.open(save(tmp_path / "w", dtype=np.int8)).tensor("layer.weight", (2, 3))


@pytest.mark.parametrize("length", [0, 4, 20, 90])
def test_a_truncated_file_is_named(tmp_path: Path, length: int) -> None:
    path = save(tmp_path / "model.safetensors")
    assert path.stat().st_size > length
    os.truncate(path, length)
    with pytest.raises(CorruptModel, match=r"model\.safetensors is not a complete safetensors file"):
        Weights.open(path)


def test_garbage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"\xff" * 1_000)
    with pytest.raises(CorruptModel, match="is not a complete safetensors file"):
        Weights.open(path)


def test_parts_are_one_set_of_tensors(tmp_path: Path) -> None:
    weights = Weights.open(save(tmp_path / "1", "a.weight"), save(tmp_path / "2", "b.weight"))
    for name in ("a.weight", "b.weight"):
        assert name in weights
        assert weights.shape(name) == (2, 3)
        assert np.array_equal(weights.tensor(name, (2, 3)).read(), VALUES)
    assert "c.weight" not in weights


def test_the_part_with_the_wrong_shape_is_named(tmp_path: Path) -> None:
    weights = Weights.open(save(tmp_path / "first", "a.weight"), save(tmp_path / "second", "b.weight"))
    with pytest.raises(CorruptModel, match=r"second: tensor 'b\.weight' has shape"):
        weights.tensor("b.weight", (3, 2))


def test_whole_numbers_are_read_as_such(tmp_path: Path) -> None:
    weights = Weights.open(save(tmp_path / "w", "mapping", np.int32), save(tmp_path / "f", "floats"))
    assert weights.integers("mapping").dtype == np.int64
    assert np.array_equal(weights.integers("mapping"), VALUES.astype(np.int64))
    with pytest.raises(CorruptModel, match="holds F32, not whole numbers"):
        weights.integers("floats")


def write_header(path: Path, header: dict[str, object]) -> Path:
    """Write a safetensors file without data."""
    content = json.dumps(header).encode()
    path.write_bytes(len(content).to_bytes(8, "little") + content)
    return path


def empty_tensors(count: int) -> dict[str, object]:
    return {
        f"experts.{number}.weight": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
        for number in range(count)
    }


@pytest.mark.promise("bounded-input", "loop-responsive")
def test_a_header_of_too_many_tensors_or_entries_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = write_header(tmp_path / "model.safetensors", empty_tensors(MAX_TENSORS + 1))
    with pytest.raises(CorruptModel, match=f"has {MAX_TENSORS + 1} tensors; at most {MAX_TENSORS}"):
        Weights.open(path)
    metadata = {str(number): "" for number in range(70_000)}
    with pytest.raises(CorruptModel, match="entries of metadata"):
        Weights.open(write_header(path, {"__metadata__": metadata, **empty_tensors(1)}))


def test_all_tensors_of_a_mixture_of_experts_are_found(tmp_path: Path) -> None:
    header = {"__metadata__": {"format": "pt"}, **empty_tensors(18_000)}
    weights = Weights.open(write_header(tmp_path / "model.safetensors", header))
    assert weights.tensor("experts.17999.weight", (0,)).place is not None
