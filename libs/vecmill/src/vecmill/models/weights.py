"""Tensors of a safetensors file, by name and checked shape, read when they are needed.

Nothing is read before `StoredTensor.read`, so that a model can be larger than memory has room for
twice. safetensors checks the file's own header and length when it is opened.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.types import FloatArray

_FLOATS = frozenset({"F16", "BF16", "F32"})

# Checkpoints of a model with a head, and older ones, name the same tensors differently.
_PREFIXES = ("", "bert.")
_RENAMES = (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta"))


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor that is somewhere else until `read` returns it, float32."""

    name: str
    shape: tuple[int, ...]
    read: Callable[[], FloatArray]


def concatenate(name: str, tensors: Sequence[StoredTensor]) -> StoredTensor:
    """Tensors one below the other, joined when they are read."""
    rows = sum(tensor.shape[0] for tensor in tensors)
    return StoredTensor(
        name,
        (rows, *tensors[0].shape[1:]),
        lambda: np.concatenate([tensor.read() for tensor in tensors]),
    )


class Weights:
    """An open safetensors file."""

    def __init__(self, path: Path, file: Any) -> None:
        self._path = path
        self._file = file
        self._names = frozenset(file.keys())

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open `path`. Raises `CorruptModel` if it is no whole safetensors file."""
        from safetensors import SafetensorError, safe_open

        try:
            return cls(path, safe_open(path, framework="np"))
        except (SafetensorError, OSError) as error:
            raise CorruptModel(
                f"{path} is not a whole safetensors file: {error}. Download the model again."
            ) from error

    def tensor(self, name: str, shape: tuple[int, ...]) -> StoredTensor:
        """The tensor called `name`, which must have `shape`.

        Raises `CorruptModel` if there is none or its shape differs, `UnsupportedModel` for integers.
        """
        stored = self._find(name)
        view = self._file.get_slice(stored)
        if tuple(view.get_shape()) != shape:
            raise CorruptModel(
                f"{self._path}: tensor {stored!r} has shape {list(view.get_shape())}, "
                f"config.json asks for {list(shape)}."
            )
        if view.get_dtype() not in _FLOATS:
            raise UnsupportedModel(
                f"{self._path}: tensor {stored!r} holds {view.get_dtype()}; supported are "
                f"{', '.join(sorted(_FLOATS))}."
            )
        return StoredTensor(name, shape, lambda: self._read(stored))

    def _find(self, name: str) -> str:
        spellings = [name, *(name.replace(new, old) for new, old in _RENAMES if new in name)]
        for candidate in (prefix + spelling for prefix in _PREFIXES for spelling in spellings):
            if candidate in self._names:
                return candidate
        raise CorruptModel(f"{self._path} has no tensor {name!r}, which config.json asks for.")

    def _read(self, stored: str) -> FloatArray:
        # numpy learns bfloat16 from this package.
        import ml_dtypes  # noqa: F401

        return np.ascontiguousarray(self._file.get_tensor(stored), np.float32)
