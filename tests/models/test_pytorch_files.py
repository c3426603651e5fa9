"""PyTorch's weights files: the same numbers as from safetensors, to the bit, and damaged files are named."""

import io
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from support.pytorch_files import (
    FORMATS,
    dictionary,
    name,
    number,
    save_with_torch,
    storage,
    string,
    tensor,
    write_archive,
    write_file,
)
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.weights import Weights, fp32_bytes

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
ODD_BITS = (0x7FC00001, 0xFFC12345, 0x7F800000, 0xFF800000, 0x00000001, 0x80000000, 0x7F7FFFFF, 0x3F800001)
CONTENT = struct.pack("<6f", *range(6))


def random_tensor(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(*shape, generator=generator).to(dtype)


def assert_same_as_safetensors(folder: Path, tensors: dict[str, torch.Tensor], form: str) -> Weights:
    """Compare every tensor, as `Weights` reads it, with the same tensor in a safetensors file, bit by bit."""
    plain = {key: value.detach().contiguous().clone() for key, value in tensors.items()}
    safetensors.torch.save_file(plain, folder / "model.safetensors")
    expected = Weights.open(folder / "model.safetensors")
    found = Weights.open(save_with_torch(folder / "pytorch_model.bin", tensors, form))
    for key, value in plain.items():
        shape = tuple(value.shape)
        assert found.shape(key) == shape
        if value.is_floating_point():
            ours, theirs = (weights.tensor(key, shape).read() for weights in (found, expected))
            assert ours.tobytes() == theirs.tobytes()
            assert ours.flags["C_CONTIGUOUS"]
            assert ours.flags["WRITEABLE"]
        else:
            assert np.array_equal(found.integers(key), expected.integers(key))
    return found


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_numbers_are_those_of_safetensors_to_the_bit(tmp_path: Path, form: str, dtype: torch.dtype) -> None:
    odd = torch.tensor(np.array(ODD_BITS, np.uint32).view(np.int32)).view(torch.float32)
    tensors = {
        "a.weight": random_tensor(5, 7, dtype=dtype),
        "odd.weight": odd.to(dtype),
        "a.bias": random_tensor(3, dtype=dtype),
    }
    assert_same_as_safetensors(tmp_path, tensors, form)


@pytest.mark.parametrize("form", FORMATS)
def test_views_are_read_as_what_they_show(tmp_path: Path, form: str) -> None:
    base = random_tensor(8, 12)
    tensors = {
        "base": base,
        "same": base,
        "turned": base.T,
        "part": base[2:5, 3:9],
        "every_other": base[::2, ::3],
        "from_the_middle": base.flatten()[17:],
        "permuted": base.view(2, 4, 12).permute(2, 0, 1),
        "column": base[:, 4],
        "one_row": base[3:4],
        "scalar": base[1, 1],
        "empty": base[:0],
        "empty_alone": torch.empty(0, 3),
        "parameter": torch.nn.Parameter(random_tensor(4, 2)),
        "position_ids": torch.arange(6).expand((1, -1)),
        "half": base.to(torch.bfloat16)[:, 1:6],
    }
    weights = assert_same_as_safetensors(tmp_path, tensors, form)
    whole = base.T.contiguous().numpy()
    assert np.array_equal(weights.part("turned", (12, 8), 3, 7).read(), whole[3:7])
    assert np.array_equal(weights.rows("turned", (12, 8), [11, 0]).read(), whole[[11, 0]])


@pytest.mark.parametrize("form", FORMATS)
def test_the_state_of_a_module_is_read(tmp_path: Path, form: str) -> None:
    """It is an OrderedDict with an attribute, the versions of the modules."""
    layers = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4), torch.nn.BatchNorm1d(4))
    state = layers.state_dict()
    assert hasattr(state, "_metadata")
    assert_same_as_safetensors(tmp_path, state, form)
    save_with_torch(tmp_path / "parameters.bin", dict(layers.named_parameters()), form)
    weight = Weights.open(tmp_path / "parameters.bin").tensor("0.weight", (4, 3)).read()
    assert np.array_equal(weight, layers[0].weight.detach().numpy())


def test_shards_are_one_set_of_tensors(tmp_path: Path) -> None:
    paths = [
        save_with_torch(tmp_path / f"pytorch_model-{place:05}-of-00002.bin", {key: random_tensor(2, 3)}, form)
        for place, (key, form) in enumerate(zip("ab", FORMATS, strict=True), 1)
    ]
    weights = Weights.open(*paths)
    assert all(np.array_equal(weights.tensor(key, (2, 3)).read(), random_tensor(2, 3)) for key in "ab")
    assert fp32_bytes(paths) == 2 * 6 * 4


def test_python_2_wrote_other_strings_and_dictionaries(tmp_path: Path) -> None:
    """A list of pairs for an OrderedDict, and strings without an encoding."""
    pair = b"](U\x01a" + tensor() + b"e"
    program = b"\x80\x02" + name("collections.OrderedDict") + b"](" + pair + b"e\x85R."
    (tmp_path / "w.bin").write_bytes(write_file("legacy", program, {"0": CONTENT}))
    found = Weights.open(tmp_path / "w.bin").tensor("a", (2, 3)).read()
    assert np.array_equal(found, np.arange(6, dtype=np.float32).reshape(2, 3))


def test_names_of_tensors_may_have_any_characters(tmp_path: Path) -> None:
    assert "schicht.größe\n" in Weights.open(
        save_with_torch(tmp_path / "w.bin", {"schicht.größe\n": random_tensor(1)})
    )


def test_zip64_records_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As files of more than 4 GiB have them.
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 4)
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 1)
    content = write_file("zip", dictionary({"a": tensor()}), {"0": CONTENT})
    assert content.count(b"PK\x06\x06") == 1
    (tmp_path / "w.bin").write_bytes(content)
    assert Weights.open(tmp_path / "w.bin").tensor("a", (2, 3)).read()[1, 2] == 5


def test_files_of_more_than_4_gib_are_read(tmp_path: Path) -> None:
    """torch leaves holes instead of numbers, so the file takes no room on the disk."""
    path = tmp_path / "w.bin"
    with torch.serialization.skip_data():
        tensors = {"large": torch.empty(2**30 + 1), "last": torch.empty(2, 3)}
        torch.save(tensors, path)
    assert path.stat().st_size > 2**32
    weights = Weights.open(path)
    assert weights.part("large", (2**30 + 1,), 2**30 - 1, 2**30 + 1).read().tolist() == [0, 0]
    assert weights.tensor("last", (2, 3)).read().shape == (2, 3)


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize("form", FORMATS)
def test_a_truncated_file_is_named(tmp_path: Path, form: str) -> None:
    path = save_with_torch(
        tmp_path / "pytorch_model.bin", {"a": random_tensor(9, 9), "b": random_tensor(4)}, form
    )
    content = path.read_bytes()
    for length in [0, 1, 3, 10, *range(20, len(content), 37), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(CorruptModel, match=r"pytorch_model\.bin is not a complete PyTorch weights file"):
            Weights.open(path)


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_that_goes_on_is_named(tmp_path: Path, form: str) -> None:
    path = save_with_torch(tmp_path / "pytorch_model.bin", {"a": random_tensor(2, 3)}, form)
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(CorruptModel, match="is not a complete PyTorch weights file"):
        Weights.open(path)


@pytest.mark.parametrize("content", [b"\xff" * 99, b"version https://git-lfs.github.com/spec/v1", b"ustar"])
def test_another_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "w.bin").write_bytes(content)
    with pytest.raises(CorruptModel, match="begins like neither of PyTorch's formats"):
        Weights.open(tmp_path / "w.bin")


def test_big_endian_files_are_refused(tmp_path: Path) -> None:
    path = save_with_torch(tmp_path / "w.bin", {"a": random_tensor(2, 3)})
    with zipfile.ZipFile(path) as archive:
        members = {member.partition("/")[2]: archive.read(member) for member in archive.namelist()}
    assert members["byteorder"] == b"little"
    path.write_bytes(write_archive({**members, "byteorder": b"big"}))
    with pytest.raises(UnsupportedModel, match="was written on a big-endian machine"):
        Weights.open(path)
    save_with_torch(path, {"a": random_tensor(2, 3)}, "legacy")
    content = path.read_bytes()
    marked = content.replace(b"little_endianq\x02\x88", b"little_endianq\x02\x89")
    assert marked != content
    path.write_bytes(marked)
    with pytest.raises(UnsupportedModel, match="was written on a big-endian machine"):
        Weights.open(path)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda: {"a": 1}, "an entry 'a' that is not a tensor"),
        (lambda: [torch.zeros(2)], "is not a dictionary of tensors"),
        (lambda: {"a": {"b": torch.zeros(2)}}, "an entry 'a' that is not a tensor"),
        (lambda: {"a": torch.zeros(2, dtype=torch.complex64)}, "names 'torch.ComplexFloatStorage'"),
        (lambda: {"a": torch.zeros(2, dtype=torch.float8_e4m3fn)}, "names 'torch._utils._rebuild_"),
        (lambda: {"a": torch.zeros(3, 3).to_sparse()}, "names 'torch._utils._rebuild_sparse_tensor'"),
        (lambda: {"a": torch.zeros(1).expand(9)}, r"a tensor of shape \[9\] that repeats the 1 elements"),
        (lambda: {"a": torch._neg_view(torch.ones(3))}, "a tensor with properties that change its numbers"),
        (lambda: torch.nn.Linear(1, 1), "names 'torch.nn.modules.linear.Linear'|something other than"),
    ],
    ids=["number", "list", "nested", "complex", "float8", "sparse", "expanded", "negated", "module"],
)
def test_other_content_than_weights_is_named(tmp_path: Path, form: str, value: Any, message: str) -> None:
    path = save_with_torch(tmp_path / "w.bin", value(), form)
    with pytest.raises(UnsupportedModel, match=rf"w\.bin .*{message}"):
        Weights.open(path)


def test_other_protocols_are_refused(tmp_path: Path) -> None:
    for protocol in (3, 4, 5):
        torch.save({"a": torch.zeros(2)}, tmp_path / "w.bin", pickle_protocol=protocol)
        with pytest.raises(UnsupportedModel, match=f"a pickle of protocol {protocol}"):
            Weights.open(tmp_path / "w.bin")


def test_compressed_members_are_refused(tmp_path: Path) -> None:
    content = write_archive({"data.pkl": b"\x80\x02}."}, compression=zipfile.ZIP_DEFLATED)
    (tmp_path / "w.bin").write_bytes(content)
    with pytest.raises(UnsupportedModel, match="has compressed members"):
        Weights.open(tmp_path / "w.bin")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "pushed",
    [
        tensor((2, 4), (4, 1)),
        tensor((2, 3), (4, 1)),
        tensor((2, 3), (3, 1), offset=1),
        tensor((7,), (1,)),
        tensor((2**62,), (1,)),
        tensor((2**31, 2**31), (2**31, 1)),
        tensor((2,), (2**62,)),
        tensor((2,), (-1,)),
        tensor((-1,), (1,)),
        tensor((2, 3), (3,)),
        tensor((), (), offset=6),
        tensor((0, 2**62, 2**62), (1, 1, 1)),
        tensor((1,) * 40, (1,) * 40),
        tensor(pushed_storage=storage(count=2**61)),
        tensor(pushed_storage=storage(count=7)),
        tensor(pushed_storage=storage(count=-6)),
        tensor(pushed_storage=storage(key="1")),
        tensor(pushed_storage=storage(key="")),
        tensor(pushed_storage=storage(key="../data.pkl")),
        tensor(pushed_storage=storage(kind="torch.DoubleStorage")),
        tensor(pushed_storage=storage(kind="torch.HalfStorage")),
        tensor(pushed_storage=storage(count=6) + storage(count=5) + b"0"),
        tensor(pushed_storage=b"N"),
        tensor(pushed_storage=string("storage")),
        tensor(pushed_storage=number(0) + b"Q"),
        tensor(pushed_storage=storage(more=number(0))),
        tensor(pushed_storage=storage(more=b"NN")),
    ],
)
def test_tensors_that_the_file_does_not_hold_are_refused(tmp_path: Path, form: str, pushed: bytes) -> None:
    (tmp_path / "w.bin").write_bytes(write_file(form, dictionary({"a": pushed}), {"0": CONTENT}))
    with pytest.raises((CorruptModel, UnsupportedModel)) as caught:
        Weights.open(tmp_path / "w.bin")
    assert len(caught.value.message) < 600


@pytest.mark.parametrize("form", FORMATS)
def test_many_views_of_one_storage_are_no_larger_than_a_few_files(tmp_path: Path, form: str) -> None:
    large = struct.pack("<f", 1.5) * 10_000
    views = {f"{place}": tensor((10_000,), (1,), pushed_storage=storage(count=10_000)) for place in range(9)}
    for count, is_read in ((4, True), (9, False)):
        program = dictionary(dict(list(views.items())[:count]))
        (tmp_path / "w.bin").write_bytes(write_file(form, program, {"0": large}))
        if is_read:
            assert Weights.open(tmp_path / "w.bin").tensor("3", (10_000,)).read().sum() == 15_000
        else:
            with pytest.raises(UnsupportedModel, match="more than 8 times as large as the file"):
                Weights.open(tmp_path / "w.bin")


def test_a_file_that_nobody_may_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "w.bin").mkdir()
    with pytest.raises(CorruptModel, match=r"w\.bin is not a complete PyTorch weights file"):
        Weights.open(tmp_path / "w.bin")
    assert fp32_bytes([tmp_path / "w.bin"]) == 0
    assert os.listdir("/dev/fd")  # the process has not run out of them


def test_directories_of_archives_that_lie_are_refused(tmp_path: Path) -> None:
    """Every byte of the archive's records, changed in several ways, is noticed or makes no difference."""
    content = write_file("zip", dictionary({"a": tensor()}), {"0": CONTENT})
    start = content.index(b"PK\x01\x02")
    expected = np.arange(6, dtype=np.float32).reshape(2, 3)
    refused = 0
    for place in range(start, len(content)):
        for value in (0, 0xFF):
            changed = bytearray(content)
            changed[place] = value
            (tmp_path / "w.bin").write_bytes(changed)
            try:
                assert np.array_equal(Weights.open(tmp_path / "w.bin").tensor("a", (2, 3)).read(), expected)
            except (CorruptModel, UnsupportedModel):
                refused += 1
    assert refused > (len(content) - start) / 2


def test_archives_that_torch_would_not_write_are_refused(tmp_path: Path) -> None:
    program = dictionary({"a": tensor()})
    whole = {"data.pkl": program, "data/0": CONTENT}

    def refused(content: bytes) -> str:
        (tmp_path / "w.bin").write_bytes(content)
        with pytest.raises((CorruptModel, UnsupportedModel)) as caught:
            Weights.open(tmp_path / "w.bin")
        return caught.value.message

    assert "data.pkl" in refused(write_archive({"data/0": CONTENT}))
    assert "data.pkl" in refused(write_archive(whole, folder="a/b/"))
    assert "data.pkl" in refused(write_archive({"a/data.pkl": program, "b/data.pkl": program}, folder=""))
    assert "no member 'archive/data/0'" in refused(write_archive({"data.pkl": program}))
    assert "25 bytes instead of 24" in refused(write_archive({**whole, "data/0": CONTENT + b"\0"}))
    assert "ends early" in refused(write_archive({**whole, "data.pkl": program + b"."}))
    assert "bytes, more than" in refused(write_archive({**whole, "data.pkl": program + b"\0" * 2**23}))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", program)
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("archive/data.pkl", program)
    assert "twice" in refused(file.getvalue())
