"""PyTorch weights files: as torch writes them, and made by hand for what torch never writes."""

import io
import pickle  # noqa: TID251 - it writes the files, and reads none of others
import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

FORMATS = ("zip", "legacy")
STORAGES = {"float32": "torch.FloatStorage", "int64": "torch.LongStorage"}
MAGIC = 0x1950A86A20F9469CFC6C


def save_with_torch(path: Path, tensors: Any, form: str = "zip") -> Path:
    """Write `tensors` as this release of torch does, in the format `form`."""
    import torch

    torch.save(tensors, path, _use_new_zipfile_serialization=form == "zip")
    return path


def save_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]], form: str = "zip") -> Path:
    """Write arrays as torch writes tensors, but without torch; in the form "legacy" those of fp32 alone."""
    items, storages = {}, {}
    for key, (name, array) in enumerate(arrays.items()):
        steps = [step // array.itemsize for step in np.ascontiguousarray(array).strides]
        more = b"N" if form == "legacy" else b""
        pushed = storage(str(key), array.size, STORAGES[array.dtype.name], more)
        items[name] = tensor(array.shape, steps, 0, pushed)
        storages[str(key)] = array.tobytes()
    path.write_bytes(write_file(form, dictionary(items), storages))
    return path


def write_file(form: str, program: bytes, storages: Mapping[str, bytes] | None = None) -> bytes:
    """A weights file whose dictionary of tensors is the pickle `program`.

    `storages` are the contents of the storages by key; their elements have 4 bytes.
    """
    if form == "zip":
        members = {f"data/{key}": content for key, content in (storages or {}).items()}
        return write_archive({"data.pkl": program, "version": b"3\n", "byteorder": b"little", **members})
    parts = [pickle.dumps(MAGIC, 2), pickle.dumps(1001, 2), pickle.dumps({"little_endian": True}, 2), program]
    parts.append(pickle.dumps(list(storages or {}), 2))
    for content in (storages or {}).values():
        parts += [struct.pack("<q", len(content) // 4), content]
    return b"".join(parts)


def write_archive(members: Mapping[str, bytes], *, folder: str = "archive/", **options: Any) -> bytes:
    """A zip archive of stored members."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", **options) as archive:
        for name, content in members.items():
            # Without the time of writing, so that equal members are equal files.
            info = zipfile.ZipInfo(f"{folder}{name}")
            info.compress_type = archive.compression
            archive.writestr(info, content)
    return file.getvalue()


def string(text: str) -> bytes:
    """The instructions that push a string."""
    encoded = text.encode()
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def number(value: int) -> bytes:
    """The instructions that push an integer."""
    size = value.bit_length() // 8 + 1
    return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)


def name(full_name: str) -> bytes:
    """The instructions that push what a module has under a name."""
    module, _, last = full_name.rpartition(".")
    return f"c{module}\n{last}\n".encode()


def numbers(values: Sequence[int]) -> bytes:
    """The instructions that push a tuple of integers."""
    return b"(" + b"".join(map(number, values)) + b"t"


def storage(key: str = "0", count: int = 6, kind: str = "torch.FloatStorage", more: bytes = b"") -> bytes:
    """The instructions that push a storage."""
    return b"(" + string("storage") + name(kind) + string(key) + string("cpu") + number(count) + more + b"tQ"


def tensor(
    shape: Sequence[int] = (2, 3),
    strides: Sequence[int] = (3, 1),
    offset: int = 0,
    pushed_storage: bytes | None = None,
) -> bytes:
    """The instructions that push a tensor."""
    view = number(offset) + numbers(shape) + numbers(strides)
    rest = b"\x89" + name("collections.OrderedDict") + b")R"
    whole = storage() if pushed_storage is None else pushed_storage
    return name("torch._utils._rebuild_tensor_v2") + b"(" + whole + view + rest + b"tR"


def dictionary(items: Mapping[str, bytes]) -> bytes:
    """A pickle of a dictionary whose values are pushed by these instructions."""
    pushed = b"".join(string(key) + value for key, value in items.items())
    return b"\x80\x02}(" + pushed + b"u."
