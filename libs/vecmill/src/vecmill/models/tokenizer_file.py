"""Limits of the files of a tokenizer, the token ids in a `tokenizer.json`, and special tokens of settings.

The files of a tokenizer may be large, and take several times their size while they are read. A tokenizer of
a published model has at most 150 bytes and 10 values for each token of the model's vocabulary, so the
vocabulary bounds what is read.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vecmill.errors import CorruptModel, one_line
from vecmill.models.config_fields import File, check_text, check_token_number, read_mapping
from vecmill.models.directory import FileLimits, check_object
from vecmill.values.json_text import decode_first_json, decode_json, decode_long_json

MAX_TOKENIZER_BYTES = 256 * 2**20

_BASE_BYTES, _BYTES_PER_TOKEN = 8 * 2**20, 512
_BASE_VALUES, _VALUES_PER_TOKEN = 100_000, 16


LONGEST_PIECE = 8_192
"""The most bytes of a token. The library needs stack for each byte of a token of a unigram vocabulary."""

# The key of the normalisation table and the mark before its value, at the end of what precedes the value.
_TABLE_KEY = re.compile(rb'"precompiled_charsmap"\s*:\s*"$')
_KEY_BYTES = 64
# The end of a string before a number. The library takes 350 bytes of memory for each byte of a unigram piece.
_SCORED = re.compile(rb'"\s*,\s*[-0-9]')
_MOST_SCORED_BYTES = 2**24

LARGEST_TOKENIZER = FileLimits(MAX_TOKENIZER_BYTES, max_values=2**26)
"""The limits for a vocabulary of unknown size."""


def tokenizer_limits(tokens: int) -> FileLimits:
    """Return the limits of the tokenizer's files, for a model with a vocabulary of `tokens`."""
    return FileLimits(
        max_bytes=min(_BASE_BYTES + _BYTES_PER_TOKEN * tokens, MAX_TOKENIZER_BYTES),
        max_values=_BASE_VALUES + _VALUES_PER_TOKEN * tokens,
    )


def check_strings(path: Path, content: bytes) -> None:
    """Raise `CorruptModel` if a tokenizer.json has a string of more than `LONGEST_PIECE` bytes.

    The normalisation table may be longer. Strings with a score, which are the pieces of a unigram vocabulary,
    have a limit on all their bytes too.
    """
    # Without escaped quotation marks, what lies between two marks is a string, or what separates strings. A
    # string that ends in a backslash is taken together with what separates it from the next.
    text = content.replace(b'\\"', b"\\'")
    start = 0
    while start < len(text):
        mark = text.rfind(b'"', start, start + LONGEST_PIECE + 1)
        if mark < 0 and start + LONGEST_PIECE < len(text):
            if not _TABLE_KEY.search(text[max(0, start - _KEY_BYTES) : start]):
                raise CorruptModel(
                    f"{path} has a string of more than {LONGEST_PIECE} bytes, the limit for a token."
                )
            mark = text.find(b'"', start)
        if mark < 0:
            break
        start = mark + 1
    ends = (match.start() for match in _SCORED.finditer(text))
    if sum(end - text.rfind(b'"', 0, end) for end in ends) > _MOST_SCORED_BYTES:
        raise CorruptModel(
            f"{path} has more than {_MOST_SCORED_BYTES >> 20} MiB of pieces, the limit for a vocabulary."
        )


# The bytes of a document that are looked at together.
_CHUNK = 2**20


def find_members(content: bytes, name: str) -> Iterator[bytes]:
    """Yield the values of a key of a JSON object, as they stand in the document `content`.

    A key may be there several times, or escaped. What lies in other members is not decoded.
    """
    start, colon = content.find(b"{") + 1, -1
    for place in _find_marks(content):
        if content[place] == ord(":"):
            colon = place if colon < 0 else colon
            continue
        if colon >= 0 and _reads(content[start:colon]) == name:
            yield content[colon + 1 : place]
        start, colon = place + 1, -1


def _reads(key: bytes) -> Any:
    try:
        return decode_json(key)
    except ValueError:  # the library refuses the document
        return None


def _find_marks(content: bytes) -> Iterator[int]:
    """Yield the places of the colons and commas between the members of a JSON object, and of its end."""
    # All quotation marks that are left begin or end a string.
    values = np.frombuffer(content.replace(rb"\\", b"__").replace(rb"\"", b"__"), np.uint8)
    is_inside, depth = False, 0
    for start in range(0, len(values), _CHUNK):
        chunk = values[start : start + _CHUNK]
        outside = ~(np.logical_xor.accumulate(chunk == ord('"')) ^ is_inside)
        bits = chunk | 0x20  # a bracket differs from a brace in this bit
        brackets = np.flatnonzero(((bits == ord("{")) | (bits == ord("}"))) & outside)
        levels = depth + np.append(0, np.cumsum(np.where(bits[brackets] == ord("{"), 1, -1)))
        ends = np.append(brackets, len(chunk))
        found = brackets[levels[1:] == 0].tolist()
        for index in np.flatnonzero(levels == 1).tolist():
            begin = int(ends[index - 1]) if index else 0
            part = chunk[begin : ends[index]]
            is_mark = ((part == ord(",")) | (part == ord(":"))) & outside[begin : ends[index]]
            found += (np.flatnonzero(is_mark) + begin).tolist()
        yield from (start + place for place in sorted(found))
        is_inside, depth = not outside[-1], int(levels[-1])


def read_vocabulary(tokenizer: Mapping[str, Any], path: Path) -> Mapping[str, Any] | list[Any]:
    """Return `model.vocab` of a tokenizer.json: ids by token, or a list of pieces in the order of their ids.

    Raises `CorruptModel` if it is neither.
    """
    vocabulary = read_mapping(tokenizer, "model", file=path).get("vocab")
    if not isinstance(vocabulary, dict | list):
        raise CorruptModel(f"{path}: model.vocab must be an object or a list.")
    return vocabulary


def token_numbers(tokenizer: Mapping[str, Any], path: Path) -> Iterator[int]:
    """Yield the ids of all tokens of a tokenizer.json. Raises `CorruptModel` for other values."""
    vocabulary = read_vocabulary(tokenizer, path)
    if isinstance(vocabulary, dict):
        for value in vocabulary.values():
            yield check_token_number(value, f"{path}: model.vocab")
    else:
        yield from range(len(vocabulary))
    added = tokenizer.get("added_tokens") or []
    if not isinstance(added, list):
        raise CorruptModel(f"{path}: added_tokens must be a list.")
    for index, token in enumerate(added):
        value = token.get("id") if isinstance(token, dict) else None
        yield check_token_number(value, f"{path}: added_tokens[{index}].id")


# The key of the added tokens; a token of that name has no list after it.
_MOST_ADDED_BYTES = 2**20  # that are parsed alone
_ADDED_KEY = re.compile(rb'"added_tokens"\s*:\s*')


def read_added_tokens(content: bytes, path: Path) -> list[Any]:
    """Return `added_tokens` of a tokenizer.json, mostly without parsing the rest of it, which may be large.

    Raises `CorruptModel` if the list is missing or cannot be read.
    """
    places = [match.end() for match in _ADDED_KEY.finditer(content)]
    if len(places) == 1 and content.startswith(b"[", places[0]):
        text = content[places[0] : places[0] + _MOST_ADDED_BYTES].decode("utf-8", "ignore")
        with contextlib.suppress(ValueError):
            return list(decode_first_json(text))
    try:
        found = check_object(path, decode_long_json(content.decode())).get("added_tokens")
    except ValueError as error:
        raise CorruptModel(
            f"{path} cannot be read as JSON: {one_line(error)}. Download the model again."
        ) from error
    if not isinstance(found, list):
        raise CorruptModel(f"{path}: added_tokens must be a list.")
    return found


TOKENIZER_CONFIG = "tokenizer_config.json"
SPECIAL_TOKENS_MAP = "special_tokens_map.json"
ADDED_TOKENS = "added_tokens.json"


def read_token(settings: Mapping[str, Any], key: str, file: File) -> str | None:
    """Read the text of a token, which is a string or an object; `None` if there is none.

    Raises `CorruptModel` for other values.
    """
    return check_token(settings.get(key), f"{file}: {key}")


def check_token(value: object, name: str) -> str | None:
    """Return the text of a token. Raises `CorruptModel`, whose message begins with `name`."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        return check_text(value.get("content"), f"{name}.content")
    return check_text(value, name)
