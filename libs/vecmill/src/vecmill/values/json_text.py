"""Decodes and encodes JSON documents without holding the interpreter lock for long.

The parser and the encoder of the standard library are written in C, and hold the lock until a document is
done: a second for each million keys. The standard library has both in Python too, several times slower, which
let other threads run. What is decoded, encoded and refused is the same.
"""

import json
from json import scanner
from typing import Any

# Longer documents are decoded in Python. In C, this many characters take 20 ms at most.
MOST_AT_ONCE = 65_536


def decode_json(text: str) -> Any:
    """Return the value of a JSON document. Raises `ValueError` and `RecursionError`."""
    if len(text) <= MOST_AT_ONCE:
        return json.loads(text)
    decoder = json.JSONDecoder()
    decoder.scan_once = scanner.py_make_scanner(decoder)  # type: ignore[attr-defined]
    return decoder.decode(text)


def encode_json(value: Any, separators: tuple[str, str] = (", ", ": ")) -> str:
    """Return the document that `json.dumps` writes for a value of unknown size, with sorted keys.

    Raises the same errors.
    """
    # Without the argument with which `json.dumps` calls it, the method takes the encoder in Python.
    return "".join(json.JSONEncoder(sort_keys=True, separators=separators).iterencode(value))
