"""Checks the normalisation tables of sentencepiece, so that no text makes the tokenizers library fail.

A table is a trie of character sequences, and a text with their replacements, each ended by a zero byte. The
trie is a double array of 32-bit units:

    bit 31, bits 0-7    the byte that leads to the node; bit 31 is set for a value
    bit 8               whether a sequence ends here
    bits 9, 10-30       where the next nodes are, relative to this one

The library follows the units of any table without checks of its own.

Source: sentencepiece 0.2 (`normalizer.cc`), darts-clone (`darts.h`), spm_precompiled 0.1 (`lib.rs`).
"""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from vecmill.errors import CorruptModel
from vecmill.values.aliases import IntArray

BoolArray = npt.NDArray[np.bool_]

_HEADER_BYTES = 4
_VALUE = 2**31 - 1
_BLOCK = 255  # the bytes that may follow reach the 256 units around a place


def find_charsmaps(normalizer: Any) -> Iterator[bytes]:
    """Yield the tables of a normaliser of the tokenizers library, and of its members."""
    if normalizer is not None:
        yield from _find(json.loads(normalizer.__getstate__()))


def _find(state: Mapping[str, Any]) -> Iterator[bytes]:
    if state.get("type") == "Precompiled":
        yield base64.b64decode(state["precompiled_charsmap"])
    for member in state.get("normalizers", ()):
        yield from _find(member)


def check_charsmaps(normalizer: Any, path: Path) -> None:
    """Raise `CorruptModel`, which names the file `path`, if a table leads outside itself."""
    for table in find_charsmaps(normalizer):
        if not _is_sound(table):
            raise CorruptModel(
                f"{path}: the normalisation table (precompiled_charsmap) is damaged. Download the model "
                "again."
            )


@dataclass(frozen=True, slots=True)
class _Trie:
    """The units of a table, and the texts of its replacements.

    `following` is where the units after each unit begin, `steps` are the units that continue a sequence, and
    `before` is where such a unit is reached from. `ends` are true where a sequence ends.
    """

    units: IntArray
    texts: bytes
    labels: IntArray
    following: IntArray
    before: IntArray
    is_step: BoolArray
    ends: BoolArray

    @classmethod
    def read(cls, table: bytes) -> Self | None:
        """Read a table; `None` if it has no trie, or only a part of it."""
        size = int.from_bytes(table[:_HEADER_BYTES], "little") // 4 * 4
        trie, texts = table[_HEADER_BYTES : _HEADER_BYTES + size], table[_HEADER_BYTES + size :]
        if not size or len(trie) < size:
            return None
        units = np.frombuffer(trie, "<u4").astype(np.int64)
        numbers = np.arange(len(units))
        labels = units & (2**31 | 0xFF)
        following = numbers ^ ((units >> 10) << ((units & 2**9) >> 6))
        before = numbers ^ labels
        is_step = (labels > 0) & (labels <= 0xFF) & (before < len(units))
        return cls(units, texts, labels, following, before, is_step, (units >> 8) & 1 == 1)


def _is_sound(table: bytes) -> bool:
    """Return whether all that can be reached lies within the table."""
    trie = _Trie.read(table)
    if trie is None:
        return False
    units, following = trie.units, trie.following
    reached, places = np.zeros(len(units), bool), following[:1]
    while len(places):
        if np.any(places | _BLOCK >= len(units)):
            return False
        is_place = np.zeros(len(units), bool)
        is_place[places] = True
        found = np.flatnonzero(trie.is_step & ~reached & is_place[np.where(trie.is_step, trie.before, 0)])
        reached[found] = True
        places = following[found]
    values = following[reached & trie.ends]
    return _are_starts(units[values] & _VALUE, trie.texts)


def _are_starts(values: IntArray, texts: bytes) -> bool:
    """Return whether each value is the place of a character in `texts`, or its end."""
    if np.any(values > len(texts)):
        return False
    # No byte after the first of a character begins one.
    padded = np.frombuffer(texts + b"\0", np.uint8)
    return not np.any((padded[values] & 0xC0) == 0x80)


# The library looks up single characters, and characters with their marks of fewer than six bytes in all.
_LONGEST_KEY = 5
# The published tables have 4,000 keys of five bytes.
_MOST_KEYS = 2**17


def list_replacements(encoded: str) -> list[tuple[str, str]] | None:
    """Return what the library may find in a text, and what it makes of it, by a sound table in base64.

    A key that is only a part of a character stands for the whole character, and is "". Returns `None` if the
    table has more keys than any published one.
    """
    trie = _Trie.read(base64.b64decode(encoded))
    if trie is None:
        return []
    steps = np.flatnonzero(trie.is_step)
    steps = steps[np.argsort(trie.before[steps], kind="stable")]
    origins = trie.before[steps]
    found: list[tuple[str, str]] = []
    keys, places = [b""], trie.following[:1]
    for _ in range(_LONGEST_KEY):
        first = np.searchsorted(origins, places, "left")
        counts = np.searchsorted(origins, places, "right") - first
        if counts.sum() > _MOST_KEYS:
            return None
        parents = np.repeat(np.arange(len(places)), counts)
        nodes = steps[np.arange(len(parents)) + np.repeat(first - np.cumsum(counts) + counts, counts)]
        labels = trie.labels[nodes].tolist()
        keys = [keys[parent] + bytes([label]) for parent, label in zip(parents.tolist(), labels, strict=True)]
        places = trie.following[nodes]
        found += [
            (_decode(keys[index]), _replacement(trie, int(places[index])))
            for index in np.flatnonzero(trie.ends[nodes])
        ]
    return found


def _decode(key: bytes) -> str:
    try:
        return key.decode("utf-8")
    except UnicodeDecodeError:
        return ""


def _replacement(trie: _Trie, place: int) -> str:
    start = int(trie.units[place]) & _VALUE
    end = trie.texts.find(b"\0", start)
    return trie.texts[start : None if end < 0 else end].decode("utf-8")
