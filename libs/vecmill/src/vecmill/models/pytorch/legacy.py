"""Reads the format of PyTorch before 1.6: several pickles in a row, and then the storages.

    magic number, version, system      three small pickles
    the dictionary of tensors          a pickle
    the keys of the storages           a pickle: a list of strings
    for each key: count, elements      8 bytes, and the elements

Source of the rules: torch 2.13, `_legacy_save` and `_legacy_load` of `serialization.py`.
"""

import struct
from collections.abc import Mapping
from typing import Any

from vecmill.models.pytorch.not_read import DamagedFile, RefusedContent, show
from vecmill.models.pytorch.pickled import Storage
from vecmill.models.pytorch.unpickler import Unpickler

# The pickle of the magic number.
SIGNATURE = b"\x80\x02\x8a\x0a" + (0x1950A86A20F9469CFC6C).to_bytes(10, "little") + b"."
_VERSION = 1001
_COUNT = struct.Struct("<q")


def read_legacy(data: memoryview) -> tuple[Any, Mapping[str, memoryview]]:
    """Return the value of the pickle in `data`, and the bytes of each storage by key.

    Raises `DamagedFile` or `RefusedContent`.
    """
    # One interpreter for all pickles, because its limits apply to all of them together.
    unpickler = Unpickler(data[len(SIGNATURE) :])
    if unpickler.load() != _VERSION:
        raise RefusedContent("is of an unknown version of PyTorch's format")
    system = unpickler.load()
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise RefusedContent("was written on a big-endian machine")
    value = unpickler.load()
    keys = unpickler.load()
    return value, _find_storages(data, len(SIGNATURE) + unpickler.position, keys, unpickler.storages)


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
