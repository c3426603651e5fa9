"""Reads tensors of safetensors and PyTorch files by name and expected shape, lazily.

Only `StoredTensor.read` loads a tensor, so memory never holds two copies of a model. Opening a file checks
its header and its length. The names of several files (shards) form one set. A tensor whose elements stand in
a file one after the other has a `FilePlace`, from which a runtime can map it without a copy.
"""

import copy
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from vecmill.errors import CorruptModel, UnsupportedModel, one_line
from vecmill.models.pytorch.weights_file import PyTorchFile
from vecmill.models.safetensors_file import SafetensorsFile
from vecmill.models.tied_tensors import Tie
from vecmill.values.aliases import FloatArray, IntArray

PYTORCH_SUFFIXES = (".bin", ".pt")
_PARTS = 4  # such as queries, keys and values
_COMPARED_NUMBERS = 2**20  # of two tensors at once

FLOATS = frozenset({"F16", "BF16", "F32", "F64"})
# The types that runtimes read, and their names in numpy.
_MAPPED_TYPES: Mapping[str, str] = {"F32": "<f4", "F16": "<f2", "BF16": "bfloat16"}
INTEGERS = frozenset({"I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64"})

# Names in current -> in older checkpoints.
_RENAMES = (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta"))


@dataclass(frozen=True, slots=True)
class FilePlace:
    """The place of a tensor in a file: its elements, row by row, begin at the byte `offset`.

    `kind` is the type of the elements as safetensors names it: "F32", "F16" or "BF16".
    """

    path: Path
    offset: int
    kind: str

    @property
    def has_16_bits(self) -> bool:
        """Whether an element has 16 bits."""
        return self.kind != "F32"

    def map(self, shape: tuple[int, ...]) -> Any:
        """Return the elements as a read-only array of `shape`, mapped from the file."""
        # Importing the package registers bfloat16 with numpy.
        import ml_dtypes  # noqa: F401

        return np.memmap(self.path, _MAPPED_TYPES[self.kind], "r", self.offset, shape)


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor that `read` loads as float32. `place` is where a file holds the same values, if one does."""

    name: str
    shape: tuple[int, ...]
    read: Callable[[], FloatArray]
    place: FilePlace | None = None


def concatenate(name: str, tensors: Sequence[StoredTensor]) -> StoredTensor:
    """Return one tensor that joins these along the first axis; they are joined when it is read."""
    rows = sum(tensor.shape[0] for tensor in tensors)
    return StoredTensor(
        name,
        (rows, *tensors[0].shape[1:]),
        lambda: np.concatenate([tensor.read() for tensor in tensors]),
    )


def transpose(tensor: StoredTensor) -> StoredTensor:
    """Return a matrix with rows and columns exchanged; they are exchanged when it is read."""
    rows, columns = tensor.shape
    return StoredTensor(f"{tensor.name}.T", (columns, rows), lambda: np.ascontiguousarray(tensor.read().T))


def reshape(tensor: StoredTensor, shape: tuple[int, ...]) -> StoredTensor:
    """Return the tensor with another shape of as many elements, in the same order."""
    return replace(tensor, shape=shape, read=lambda: tensor.read().reshape(shape))


class Weights:
    """Open weights files, as one set of tensors. `asked_by` are settings, for messages about wrong shapes."""

    def __init__(self, files: Mapping[Path, Any], asked_by: Mapping[str, Any] = MappingProxyType({})) -> None:
        self._asked_by = asked_by
        self._path, *_ = files
        self._file_of = {name: file for file in files.values() for name in list(file.keys())}
        self._path_of = {name: path for path, file in files.items() for name in list(file.keys())}
        self._prefixes: tuple[str, ...] = ("",)
        self._ties: Mapping[str, Tie] = {}
        self._read_rows: Sequence[int] = ()
        self._known_copies: dict[str, bool] = {}

    @classmethod
    def open(cls, *paths: Path, asked_by: Mapping[str, Any] = MappingProxyType({})) -> Self:
        """Open `paths`: files named *.bin or *.pt are PyTorch files, others are safetensors files.

        Raises `CorruptModel` if a file is not complete, `UnsupportedModel` if a PyTorch file has other
        content than weights.
        """
        return cls({path: open_weights_file(path) for path in paths}, asked_by)

    def with_prefix(self, prefix: str) -> "Weights":
        """Return the same tensors, whose names may begin with `prefix`.

        A model with a head prefixes the names of the encoder's tensors, for example with "bert.".
        """
        weights = copy.copy(self)
        weights._prefixes = ("", prefix)
        return weights

    def tied(self, ties: Iterable[Tie], rows: Sequence[int] = ()) -> "Weights":
        """Return the same tensors, where one that is missing or a copy is the one that it is tied to.

        `rows` are those that are read of tied tensors, if these are not all: others need not be equal.
        """
        weights = copy.copy(self)
        weights._ties = {name: tie for tie in ties if tie.applies for name in (tie.own, tie.other)}
        weights._read_rows = rows
        weights._known_copies = {}
        return weights

    def tells_apart(self, tie: Tie) -> bool:
        """Return whether the files have both tensors of `tie`, and they differ in what is read of them."""
        stored, other = self._spelling(tie.own), self._spelling(tie.other)
        return stored is not None and other is not None and not self._are_equal(stored, other)

    def holds(self, name: str) -> bool:
        """Return whether `tensor` would find the tensor `name`."""
        return self._spelling(self._choose(name)) is not None

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the stored shape of the tensor `name`. Raises `CorruptModel` if the tensor is missing."""
        stored = self._find(name)
        return tuple(self._file_of[stored].get_slice(stored).get_shape())

    def __contains__(self, name: str) -> bool:
        """Return whether a tensor has exactly this name."""
        return name in self._file_of

    def tensor(self, name: str, shape: tuple[int, ...], *, kinds: Collection[str] = FLOATS) -> StoredTensor:
        """Return the tensor `name`, which must have `shape`.

        Its own name is then that of the tensor which is read, if it is tied to another one. Raises
        `CorruptModel` if it is missing or its shape differs, `UnsupportedModel` if its elements are none of
        `kinds`, which are by default not whole numbers.
        """
        name = self._choose(name)
        stored = self._find(name)
        path, view = self._path_of[stored], self._file_of[stored].get_slice(stored)
        if tuple(view.get_shape()) != shape:
            raise CorruptModel(
                f"{path}: tensor {stored!r} has shape {list(view.get_shape())}, "
                f"config.json asks for {list(shape)}{self._name_sizes(shape, tuple(view.get_shape()))}."
            )
        if view.get_dtype() not in kinds:
            raise UnsupportedModel(
                f"{path}: tensor {stored!r} holds {view.get_dtype()}; supported are "
                f"{', '.join(sorted(kinds))}."
            )
        return StoredTensor(name, shape, lambda: self._read(stored), self._find_place(stored))

    def rows(self, name: str, shape: tuple[int, ...], rows: Sequence[int]) -> StoredTensor:
        """Return `rows` of the tensor `name`, which must have `shape`; other rows are not read.

        Raises the same errors as `tensor`, and `CorruptModel` if there is no such row.
        """
        whole = self.tensor(name, shape)
        for row in rows:
            if not 0 <= row < shape[0]:
                raise CorruptModel(f"{self._path}: tensor {name!r} has {shape[0]} rows, not row {row}.")
        stored = self._find(name)
        return StoredTensor(
            f"{whole.name}[{', '.join(map(str, rows))}]",
            (len(rows), *shape[1:]),
            lambda: self._read(stored, rows),
        )

    def part(self, name: str, shape: tuple[int, ...], start: int, stop: int) -> StoredTensor:
        """Return rows `start` to `stop` of the tensor `name`, which must have `shape`; read no other rows.

        Raises the same errors as `tensor`.
        """
        whole, stored = self.tensor(name, shape), self._find(name)
        if (start, stop) == (0, shape[0]):
            return whole
        return StoredTensor(
            f"{whole.name}[{start}:{stop}]",
            (stop - start, *shape[1:]),
            lambda: self._read(stored, slice(start, stop)),
        )

    def integers(self, name: str) -> IntArray:
        """Read the integer tensor `name` at once, as int64. Raises `CorruptModel`."""
        stored = self._find(name)
        dtype = self._file_of[stored].get_slice(stored).get_dtype()
        if dtype not in INTEGERS:
            raise CorruptModel(
                f"{self._path_of[stored]}: tensor {stored!r} holds {dtype}, not whole numbers."
            )
        return np.asarray(self._file_of[stored].get_tensor(stored), np.int64)

    def _find_place(self, stored: str) -> FilePlace | None:
        """Return the place of a tensor, `None` if no file holds its elements in order and aligned."""
        file = self._file_of[stored]
        kind, offset = file.get_slice(stored).get_dtype(), file.find_offset(stored)
        if kind not in _MAPPED_TYPES or offset is None or offset % np.dtype(np.float32).itemsize:
            return None
        return FilePlace(self._path_of[stored], offset, kind)

    def _choose(self, name: str) -> str:
        """Return the name of the tensor that is read for `name`: that of the one it is tied to, or `name`."""
        tie = self._ties.get(name)
        if tie is None:
            return name
        partner = tie.partner(name)
        stored, other = self._spelling(name), self._spelling(partner)
        if other is None or (stored is not None and (name == tie.other or tie.reads_copies)):
            return name
        return partner if stored is None or self._is_copy(stored, other) else name

    def _is_copy(self, stored: str, other: str) -> bool:
        if stored not in self._known_copies:
            self._known_copies[stored] = self._are_equal(stored, other)
        return self._known_copies[stored]

    def _are_equal(self, stored: str, other: str) -> bool:
        """Return whether two tensors of the files have the same values in the rows that are read of them."""
        # Importing the package registers bfloat16 with numpy.
        import ml_dtypes  # noqa: F401

        first, second = (self._file_of[name].get_slice(name) for name in (stored, other))
        shape = tuple(first.get_shape())
        if (
            shape != tuple(second.get_shape())
            or not shape
            or {first.get_dtype(), second.get_dtype()} - FLOATS
        ):
            return False
        places = self._find_place(stored), self._find_place(other)
        if places[0] is not None and places[0] == places[1]:  # two views of a PyTorch file
            return True
        step = max(1, _COMPARED_NUMBERS // max(1, math.prod(shape[1:])))
        parts = [slice(row, row + 1) for row in self._read_rows if 0 <= row < shape[0]] or [
            slice(start, min(start + step, shape[0])) for start in range(0, shape[0], step)
        ]
        return all(
            np.array_equal(np.asarray(first[part], np.float32), np.asarray(second[part], np.float32))
            for part in parts
        )

    def _find(self, name: str) -> str:
        stored = self._spelling(self._choose(name))
        if stored is None:
            keys = _join_keys(key for key, value in self._asked_by.items() if _asks_for(key, value, name))
            raise CorruptModel(f"{self._path} has no tensor {name!r}, which config.json asks for{keys}.")
        return stored

    def _name_sizes(self, asked: tuple[int, ...], stored: tuple[int, ...]) -> str:
        """Return the keys of the settings that may ask for a wrong shape."""
        pairs = zip(asked, stored, strict=True) if len(asked) == len(stored) else ((one, 0) for one in asked)
        wrong = [one for one, other in pairs if one != other]
        sizes = {
            key: value
            for key, value in self._asked_by.items()
            if isinstance(value, int | float) and abs(value) < math.inf
        }
        exact = [key for key, value in sizes.items() if value in wrong]
        parts = [key for key, value in sizes.items() if any(_is_part(value, one) for one in wrong)]
        # Projections have a dimension for each head.
        heads = [key for key in sizes if "head_dim" in exact and key.endswith("_heads")]
        return _join_keys([*exact, *heads] or parts)

    def _spelling(self, name: str) -> str | None:
        """Return the name that the tensor `name` has in the file."""
        spellings = [name, *(name.replace(new, old) for new, old in _RENAMES if new in name)]
        candidates = (prefix + spelling for prefix in self._prefixes for spelling in spellings)
        return next((candidate for candidate in candidates if candidate in self._file_of), None)

    def _read(self, stored: str, rows: Sequence[int] | slice | None = None) -> FloatArray:
        # Importing the package registers bfloat16 with numpy.
        import ml_dtypes  # noqa: F401

        file = self._file_of[stored]
        if rows is None:
            return np.ascontiguousarray(file.get_tensor(stored), np.float32)
        view = file.get_slice(stored)
        if isinstance(rows, slice):
            return np.ascontiguousarray(view[rows], np.float32)
        return np.ascontiguousarray(np.concatenate([view[row : row + 1] for row in rows]), np.float32)


def _is_part(size: float, whole: int) -> bool:
    """Return whether a dimension consists of a few parts of this size, which are stored as one tensor."""
    return size >= 1 and whole % size == 0 and (size > 1 or whole <= _PARTS)


def _asks_for(key: str, value: object, tensor: str) -> bool:
    """Return whether a setting may ask for a tensor: a number of layers, or a flag for parts of it."""
    # A model without a flag, such as share_att_key, has other tensors.
    is_flag = isinstance(value, int) and value in (True, False) and not key.endswith("_id")
    shares_word = not set(re.split("[._]", key)).isdisjoint(re.split("[._]", tensor))
    is_untied = key.startswith("tie_") and not value
    return (is_flag and shares_word) or is_untied or "layer" in key or "group" in key


def _join_keys(keys: Iterable[str]) -> str:
    found = ", ".join(keys)
    return f" by {found}" if found else ""


def count_bytes(paths: Iterable[Path]) -> int:
    """Return the size of the files that exist."""
    return sum(path.stat().st_size for path in paths if path.is_file())


def fp32_bytes(paths: Sequence[Path]) -> int:
    """Return the size of the tensors of weights files in fp32, or the size of files of another kind.

    Returns 0 for files that cannot be read.
    """
    if any(path.suffix not in (".safetensors", *PYTORCH_SUFFIXES) for path in paths):
        return count_bytes(paths)
    try:
        files = [open_weights_file(path) for path in paths]
    except (CorruptModel, UnsupportedModel):
        return 0
    return sum(
        4 * math.prod(file.get_slice(name).get_shape()) for file in files for name in list(file.keys())
    )


def open_weights_file(path: Path) -> Any:
    """Open one file. Raises the same errors as `Weights.open`."""
    if path.suffix in PYTORCH_SUFFIXES:
        return PyTorchFile.open(path)
    from safetensors import SafetensorError

    try:
        return SafetensorsFile(path)
    except (SafetensorError, OSError) as error:
        raise CorruptModel(
            f"{path} is not a complete safetensors file: {one_line(error)}. Download the model again."
        ) from error


def check_whole(paths: Iterable[Path]) -> None:
    """Raise `CorruptModel` if the size of a safetensors file is not what its header says."""
    for path in paths:
        if path.suffix == ".safetensors":
            open_weights_file(path)
