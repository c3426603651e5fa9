"""The tensors of a PyTorch weights file in either format, read from a memory map of the file.

Opening checks every size, offset and stride against the file. A tensor is copied when it is read.

The format of PyTorch before 1.6 is several pickles in a row, and then the storages:

    magic number, version, system      three small pickles
    the dictionary of tensors          a pickle
    the keys of the storages           a pickle: a list of strings
    for each key: count, elements      8 bytes, and the elements

Source of its rules: torch 2.13, `_legacy_save` and `_legacy_load` of `serialization.py`.
"""

import mmap
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vecmill.errors import CorruptModel, UnsupportedModel, one_line
from vecmill.models.pytorch import archive
from vecmill.models.pytorch.pickled import DamagedFile, PickledTensor, RefusedContent, Storage, show
from vecmill.models.pytorch.unpickler import MAX_PICKLE_BYTES, Unpickler

# Tied weights are several tensors that view one storage: four for the embeddings of T5.
_MAX_VIEWS = 8


class TensorSlice:
    """A tensor of a file, of which rows can be read. Has the methods of a slice of safetensors."""

    def __init__(self, tensor: PickledTensor, data: memoryview) -> None:
        self._tensor = tensor
        self._data = data

    def get_shape(self) -> list[int]:
        """Return the shape."""
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        """Return the type of the elements as safetensors names it, such as "F32"."""
        return self._tensor.storage.type.name

    def __getitem__(self, rows: Any) -> Any:
        """Return a copy of `rows`, a slice."""
        return np.array(self._view()[rows], order="C")

    def find_start(self) -> int | None:
        """Return the address of the first element in memory, `None` if the elements are not in order."""
        view = self._view()
        return view.ctypes.data if view.flags.c_contiguous and view.size else None

    def _view(self) -> Any:
        """Return the elements in the memory map."""
        # Importing the package registers bfloat16 with numpy.
        import ml_dtypes  # noqa: F401

        tensor, kind = self._tensor, self._tensor.storage.type
        if not tensor.nbytes:
            return np.empty(tensor.shape, kind.numpy_name)
        elements = np.frombuffer(self._data, kind.numpy_name)[tensor.offset :]
        # The stride of a single row has no effect, and may be any number.
        strides = [
            step * kind.itemsize if size > 1 else 0
            for size, step in zip(tensor.shape, tensor.strides, strict=True)
        ]
        return np.lib.stride_tricks.as_strided(elements, tensor.shape, strides, writeable=False)


class PyTorchFile:
    """An open PyTorch weights file. Has the methods of an open safetensors file."""

    def __init__(
        self, data: memoryview, tensors: Mapping[str, PickledTensor], storages: Mapping[str, memoryview]
    ) -> None:
        self._data = data
        self._tensors = tensors
        self._storages = storages

    @classmethod
    def open(cls, path: Path) -> "PyTorchFile":
        """Open the file at `path`.

        Raises `CorruptModel` if the file is incomplete, and `UnsupportedModel` if its pickle has a name or an
        instruction that weights do not need, or the file has another unsupported property.
        """
        try:
            with path.open("rb") as file:
                data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except (OSError, ValueError) as error:  # ValueError for an empty file
            raise _damaged(path, error) from error
        try:
            return cls(data, *_read(data))
        except DamagedFile as error:
            raise _damaged(path, error) from error
        except RefusedContent as error:
            raise UnsupportedModel(
                f"{path} {one_line(error)}. The file is refused, and nothing that it names was executed. "
                "Save the model as safetensors, with any recent transformers."
            ) from error

    def keys(self) -> Iterable[str]:
        """Return the names of the tensors."""
        return self._tensors.keys()

    def get_slice(self, name: str) -> TensorSlice:
        """Return the tensor `name`, without reading it."""
        tensor = self._tensors[name]
        return TensorSlice(tensor, self._storages[tensor.storage.key])

    def get_tensor(self, name: str) -> Any:
        """Return a copy of the tensor `name` as an array of its own dtype."""
        return self.get_slice(name)[...]

    def find_offset(self, name: str) -> int | None:
        """Return the byte at which the tensor `name` begins, `None` if its elements are not in order."""
        start = self.get_slice(name).find_start()
        return None if start is None else start - np.frombuffer(self._data, np.uint8).ctypes.data


def _damaged(path: Path, error: Exception) -> CorruptModel:
    return CorruptModel(
        f"{path} is not a complete PyTorch weights file: {one_line(error)}. Download the model again."
    )


def _read(data: memoryview) -> tuple[Mapping[str, PickledTensor], Mapping[str, memoryview]]:
    if data[: len(archive.SIGNATURE)] == archive.SIGNATURE:
        value, storages = _read_archive(data)
    elif data[: len(_LEGACY_SIGNATURE)] == _LEGACY_SIGNATURE:
        value, storages = _read_legacy(data)
    else:
        raise DamagedFile("it begins like neither of PyTorch's formats")
    return _check_tensors(value, len(data)), storages


def _read_archive(data: memoryview) -> tuple[Any, Mapping[str, memoryview]]:
    """Return the value of the pickle in an archive, and the bytes of each storage by key."""
    members = archive.read_members(data)
    found = [name for name in members if name.count("/") == 1 and name.endswith("/data.pkl")]
    if len(found) != 1:
        raise DamagedFile("its archive does not have exactly one data.pkl")
    folder = found[0].removesuffix("data.pkl")
    if members.get(f"{folder}byteorder", b"little") != b"little":
        raise RefusedContent("was written on a big-endian machine")
    pickle = members[found[0]]
    if len(pickle) > MAX_PICKLE_BYTES:
        raise RefusedContent(f"has a pickle of {len(pickle)} bytes, more than {MAX_PICKLE_BYTES}")
    unpickler = Unpickler(pickle)
    value = unpickler.load()
    if unpickler.position != len(pickle):
        raise DamagedFile("its pickle ends early")
    return value, {
        key: _find_storage(members, f"{folder}data/{key}", storage)
        for key, storage in unpickler.storages.items()
    }


def _find_storage(members: Mapping[str, memoryview], name: str, storage: Storage) -> memoryview:
    if name not in members:
        raise DamagedFile(f"its archive has no member {show(name)}")
    if len(members[name]) != storage.nbytes:
        raise DamagedFile(
            f"the member {show(name)} of its archive has {len(members[name])} bytes instead of "
            f"{storage.nbytes}"
        )
    return members[name]


def _check_tensors(value: Any, size: int) -> Mapping[str, PickledTensor]:
    """Return the dictionary of tensors in a file of `size` bytes."""
    if not isinstance(value, dict):
        raise RefusedContent("is not a dictionary of tensors")
    for name, tensor in value.items():
        if not isinstance(tensor, PickledTensor):
            raise RefusedContent(f"has an entry {show(name)} that is not a tensor")
    if sum(tensor.nbytes for tensor in value.values()) > _MAX_VIEWS * size:
        raise RefusedContent(
            f"has tensors that are together more than {_MAX_VIEWS} times as large as the file"
        )
    return value


# The pickle of the magic number.
_LEGACY_SIGNATURE = b"\x80\x02\x8a\x0a" + (0x1950A86A20F9469CFC6C).to_bytes(10, "little") + b"."
_VERSION = 1001
_COUNT = struct.Struct("<q")


def _read_legacy(data: memoryview) -> tuple[Any, Mapping[str, memoryview]]:
    """Return the value of the pickle in `data`, and the bytes of each storage by key.

    Raises `DamagedFile` or `RefusedContent`.
    """
    # One interpreter for all pickles, because its limits apply to all of them together.
    unpickler = Unpickler(data[len(_LEGACY_SIGNATURE) :])
    if unpickler.load() != _VERSION:
        raise RefusedContent("is of an unknown version of PyTorch's format")
    system = unpickler.load()
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise RefusedContent("was written on a big-endian machine")
    value = unpickler.load()
    keys = unpickler.load()
    return value, _find_storages(data, len(_LEGACY_SIGNATURE) + unpickler.position, keys, unpickler.storages)


def _find_storages(
    data: memoryview, position: int, keys: Any, storages: Mapping[str, Storage]
) -> Mapping[str, memoryview]:
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise DamagedFile("its storages have no keys")
    if len(keys) != len(storages) or set(keys) != storages.keys():
        raise DamagedFile("it has other storages than its tensors need")
    found = {}
    for key in keys:
        start = position + _COUNT.size
        position = start + storages[key].nbytes
        if position > len(data):
            raise DamagedFile(f"storage {show(key)} is not in the file")
        (count,) = _COUNT.unpack(data[start - _COUNT.size : start])
        if count != storages[key].count:
            raise DamagedFile(f"storage {show(key)} has two sizes")
        found[key] = data[start:position]
    if position != len(data):
        raise DamagedFile("it goes on after its last storage")
    return found
