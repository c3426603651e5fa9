"""The values that the pickle of a PyTorch weights file can describe, and the functions that it can name.

The messages of the exceptions continue a sentence about the file.

Source of the rules: torch 2.13, `serialization.py` and `_utils.py`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

_SHOWN_CHARACTERS = 100


class DamagedFile(ValueError):
    """The file is incomplete, or its parts contradict each other."""


class RefusedContent(ValueError):
    """The file contains something that weights do not need, or that is not supported."""


def show(name: str | bytes) -> str:
    """Return a name of the file for an error message: quoted, shortened, without control characters."""
    shown = ascii(name[:_SHOWN_CHARACTERS])
    return shown if len(name) <= _SHOWN_CHARACTERS else f"{shown}..."


_MAX_DIMENSIONS = 16
_MAX_COUNT = 2**63 - 1
_MAX_EMPTY = 2**40  # elements of an empty tensor, its empty dimensions aside
_MAX_KEY_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class StorageType:
    """The elements of a storage: their names in safetensors and in numpy, and the bytes of an element."""

    name: str
    numpy_name: str
    itemsize: int


class Function(Enum):
    """A function that a pickle may name. The interpreter has its own implementation of each."""

    REBUILD_TENSOR = "torch._utils._rebuild_tensor_v2"
    REBUILD_PARAMETER = "torch._utils._rebuild_parameter"
    ORDERED_DICT = "collections.OrderedDict"


# The values of all names that a pickle may have.
_NAMES: Mapping[str, StorageType | Function] = {
    "torch.FloatStorage": StorageType("F32", "<f4", 4),
    "torch.DoubleStorage": StorageType("F64", "<f8", 8),
    "torch.HalfStorage": StorageType("F16", "<f2", 2),
    "torch.BFloat16Storage": StorageType("BF16", "bfloat16", 2),
    "torch.LongStorage": StorageType("I64", "<i8", 8),
    "torch.IntStorage": StorageType("I32", "<i4", 4),
    "torch.ShortStorage": StorageType("I16", "<i2", 2),
    "torch.CharStorage": StorageType("I8", "|i1", 1),
    "torch.ByteStorage": StorageType("U8", "|u1", 1),
    "torch.BoolStorage": StorageType("BOOL", "|b1", 1),
    **{function.value: function for function in Function},
}


@dataclass(frozen=True, slots=True)
class Storage:
    """A storage of `count` elements, which the file has under `key`."""

    type: StorageType
    key: str
    count: int

    @property
    def nbytes(self) -> int:
        """The size of the storage in bytes."""
        return self.count * self.type.itemsize


@dataclass(frozen=True, slots=True)
class PickledTensor:
    """A tensor that views a storage. `offset` and `strides` are in elements."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The size of the elements in bytes."""
        return math.prod(self.shape) * self.storage.type.itemsize


def find_name(module: str, name: str) -> StorageType | Function:
    """Return the value that stands for a name in a pickle. Raises `RefusedContent` for any other name."""
    full_name = f"{module}.{name}"
    if full_name not in _NAMES:
        raise RefusedContent(f"names {show(full_name)}, which weights do not need")
    return _NAMES[full_name]


def make_storage(identity: Any) -> Storage:
    """Return the storage with a persistent id. Raises `DamagedFile` or `RefusedContent`."""
    if not isinstance(identity, tuple) or not identity or identity[0] != "storage":
        raise RefusedContent("refers to something other than the storage of a tensor")
    if len(identity) not in (5, 6):
        raise DamagedFile("a storage has the wrong number of properties")
    _, kind, key, location, count, *view = identity
    if not isinstance(kind, StorageType) or not isinstance(location, str):
        raise DamagedFile("a storage has no type or no device")
    if not isinstance(key, str) or not 0 < len(key) <= _MAX_KEY_CHARACTERS:
        raise DamagedFile("a storage has no key")
    if view not in ([], [None]):
        raise RefusedContent("has a storage that is part of another storage, as before PyTorch 0.4")
    return Storage(kind, key, _whole_number(count))


def call(function: Any, arguments: Any) -> Any:
    """Return the result of a function that a pickle names. Raises `DamagedFile` or `RefusedContent`."""
    if not isinstance(function, Function) or not isinstance(arguments, tuple):
        raise RefusedContent("calls something other than a function for tensors")
    match function, arguments:
        case Function.REBUILD_TENSOR, (storage, offset, shape, strides, _, _, *more) if len(more) <= 1:
            if any(more):
                raise RefusedContent("has a tensor with properties that change its numbers")
            return _make_tensor(storage, offset, shape, strides)
        case Function.REBUILD_PARAMETER, (PickledTensor() as tensor, _, _):
            return tensor
        case Function.ORDERED_DICT, ():
            return {}
        case Function.ORDERED_DICT, (list() as pairs,):  # of Python 2
            found: dict[str, Any] = {}
            for pair in pairs:
                if not isinstance(pair, list | tuple) or len(pair) != 2:
                    raise DamagedFile("a dictionary is made of something other than pairs")
                set_item(found, pair[0], pair[1])
            return found
    raise DamagedFile(f"{function.value} is called with the wrong arguments")


def set_item(target: dict[str, Any], key: Any, value: Any) -> None:
    """Set `target[key]`. Raises `DamagedFile` unless the key is a string: hashing others can take forever."""
    if not isinstance(key, str):
        raise DamagedFile("a dictionary has a key that is not a string")
    target[key] = value


def _make_tensor(storage: Any, offset: Any, shape: Any, strides: Any) -> PickledTensor:
    if not isinstance(storage, Storage):
        raise DamagedFile("a tensor has no storage")
    sizes, steps = _whole_numbers(shape), _whole_numbers(strides)
    if len(sizes) != len(steps):
        raise DamagedFile("a tensor has another number of strides than of dimensions")
    tensor = PickledTensor(storage, _whole_number(offset), sizes, steps)
    _require_inside(tensor)
    return tensor


def _require_inside(tensor: PickledTensor) -> None:
    """Raise unless the storage holds every element, and at least as many elements as the tensor."""
    elements = math.prod(tensor.shape)
    if not elements and math.prod(filter(None, tensor.shape)) > _MAX_EMPTY:
        raise DamagedFile(f"an empty tensor has the shape {list(tensor.shape)}")
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.strides, strict=True))
    end = tensor.offset + (last + 1 if elements else 0)
    if end > tensor.storage.count:
        raise DamagedFile(
            f"a tensor of shape {list(tensor.shape)} ends at element {end} of a storage of "
            f"{tensor.storage.count}"
        )
    if elements > tensor.storage.count:
        raise RefusedContent(
            f"has a tensor of shape {list(tensor.shape)} that repeats the {tensor.storage.count} elements of "
            "its storage"
        )


def _whole_numbers(values: Any) -> tuple[int, ...]:
    if not isinstance(values, Sequence) or isinstance(values, str) or len(values) > _MAX_DIMENSIONS:
        raise DamagedFile("the shape or the strides of a tensor are not a short list of numbers")
    return tuple(_whole_number(value) for value in values)


def _whole_number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_COUNT:  # True is an int too
        raise DamagedFile("a size, an offset or a stride is not a number from 0 to 2**63 - 1")
    return value
