"""Decodes and encodes JSON documents that other programs wrote.

One error, `ValueError`, tells of all that cannot be decoded, lists in lists hundreds deep among them.

The parser and the encoder of the standard library are written in C, and hold the interpreter lock until a
document is done: a second for each million keys. The standard library has both in Python too, several times
slower, which let other threads run. What is decoded, encoded and refused is the same.
"""

import json
from collections.abc import Callable
from json import scanner
from typing import Any, TypeVar

# Longer documents are decoded in Python. In C, this many characters take 20 ms at most.
MOST_AT_ONCE = 65_536

T = TypeVar("T")


def decode_json(text: str | bytes | bytearray) -> Any:
    """Return the value of a JSON document. Raises `ValueError`."""
    return _decode(json.loads, text)


def decode_long_json(text: str) -> Any:
    """Return the value of a JSON document, and let other threads run meanwhile. Raises `ValueError`."""
    if len(text) <= MOST_AT_ONCE:
        return decode_json(text)
    decoder = json.JSONDecoder()
    decoder.scan_once = scanner.py_make_scanner(decoder)  # type: ignore[attr-defined]
    return _decode(decoder.decode, text)


def decode_first_json(text: str) -> Any:
    """Return the value of the JSON document that `text` starts with. Raises `ValueError`."""
    return _decode(json.JSONDecoder().raw_decode, text)[0]


def _decode(decode: Callable[[T], Any], text: T) -> Any:
    try:
        return decode(text)
    except RecursionError:
        raise ValueError("its lists or objects are nested too deeply") from None


def encode_json(value: Any, separators: tuple[str, str] = (", ", ": ")) -> str:
    """Return the document that `json.dumps` writes for a value of unknown size, with sorted keys.

    Raises the same errors.
    """
    # Without the argument with which `json.dumps` calls it, the method takes the encoder in Python.
    return "".join(json.JSONEncoder(sort_keys=True, separators=separators).iterencode(value))
