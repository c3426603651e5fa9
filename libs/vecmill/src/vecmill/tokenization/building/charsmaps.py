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
from pathlib import Path
from typing import Any

import numpy as np

from vecmill.errors import CorruptModel
from vecmill.values.aliases import IntArray

_HEADER_BYTES = 4
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


def _is_sound(table: bytes) -> bool:
    """Return whether all that can be reached lies within the table."""
    size = int.from_bytes(table[:_HEADER_BYTES], "little") // 4 * 4
    trie, texts = table[_HEADER_BYTES : _HEADER_BYTES + size], table[_HEADER_BYTES + size :]
    if not size or len(trie) < size:
        return False
    units = np.frombuffer(trie, "<u4").astype(np.int64)
    numbers = np.arange(len(units))
    labels = units & (2**31 | 0xFF)
    # Where the units after each unit begin, and from where each unit is reached.
    following = numbers ^ ((units >> 10) << ((units & 2**9) >> 6))
    before = numbers ^ labels
    is_step = (labels > 0) & (labels <= 0xFF) & (before < len(units))
    ends = (units >> 8) & 1 == 1
    reached, places = np.zeros(len(units), bool), following[:1]
    while len(places):
        if np.any(places | _BLOCK >= len(units)):
            return False
        is_place = np.zeros(len(units), bool)
        is_place[places] = True
        found = np.flatnonzero(is_step & ~reached & is_place[np.where(is_step, before, 0)])
        reached[found] = True
        places = following[found]
    values = following[reached & ends]
    return _are_starts(units[values] & (2**31 - 1), texts)


def _are_starts(values: IntArray, texts: bytes) -> bool:
    """Return whether each value is the place of a character in `texts`, or its end."""
    if np.any(values > len(texts)):
        return False
    # No byte after the first of a character begins one.
    padded = np.frombuffer(texts + b"\0", np.uint8)
    return not np.any((padded[values] & 0xC0) == 0x80)
