"""The unknown piece of a unigram vocabulary in a tokenizer.json: most classes set it, whatever the file says.

Source of the rules: transformers 5.23, `tokenization_*.py` of each model.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vecmill.errors import CorruptModel, one_line
from vecmill.models.config_fields import MOST_TOKENS, read_size
from vecmill.models.tokenizer_file import TOKENIZER_CONFIG
from vecmill.values.json_text import decode_long_json

# The key of the unknown piece's id; a piece of that name has no number after a colon.
_KEY = re.compile(rb'"unk_id"\s*:\s*(null|[0-9]+)')
_PIECES_KEY = re.compile(rb'"vocab"\s*:\s*\[')
_MOST_FIRST = 64  # pieces that are looked at without parsing the whole file
_FIRST_BYTES = 2**16

# The content of tokenizer.json, the settings of a class -> the id.
FindUnknown = Callable[[bytes, Mapping[str, Any]], int]


def fixed_unknown(number: int) -> FindUnknown:
    """Return the rule of a class whose unknown piece has the id `number`."""
    return lambda content, settings: number


def named_unknown(content: bytes, settings: Mapping[str, Any]) -> int:
    """Return the id of the unknown token, or 0 if the vocabulary lacks it: the rule of CamemBERT."""
    found = _find_piece(content, lambda piece, score: piece == settings["unk_token"])
    return 0 if found is None else found


def configured_unknown(content: bytes, settings: Mapping[str, Any]) -> int:
    """Return the id that tokenizer_config.json names: the rule of XLNet."""
    return _read_id(settings, 0)


def unscored_unknown(content: bytes, settings: Mapping[str, Any]) -> int:
    """Return the id of the unknown token if its score is 0, or the configured one: the rule of DeBERTa."""
    found = _find_piece(content, lambda piece, score: piece == settings["unk_token"] and score == 0)
    return _read_id(settings, 1) if found is None else found


def read_unknown(content: bytes) -> int | None:
    """Return the id of the unknown piece in the content of a tokenizer.json, if it has one."""
    found = _KEY.findall(content)
    return int(found[0]) if len(found) == 1 and found[0] != b"null" else None


def set_unknown(tokenizer: Any, number: int, content: bytes, path: Path) -> None:
    """Let the piece `number` be the unknown one of a tokenizer that was read from `content`.

    Raises `CorruptModel`, which names `path`, if there is no such piece.
    """
    from tokenizers import models

    if read_unknown(content) == number:
        return
    try:
        tokenizer.model = models.Unigram(vocab=_read_pieces(content), unk_id=number, byte_fallback=False)
    except Exception as error:  # the library raises no narrower class
        raise CorruptModel(f"{path}: the unknown piece cannot be {number}: {one_line(error)}.") from error


def _find_piece(content: bytes, is_it: Callable[[str, float], bool]) -> int | None:
    """Return the id of the first piece for which `is_it`. It is mostly the unknown piece of the file."""
    number = read_unknown(content)
    if number is not None and number < _MOST_FIRST:
        first = _read_first_pieces(content, number + 1)
        found = next((at for at, piece in enumerate(first) if is_it(*piece)), None)
        if found is not None:
            return found
    return next((at for at, piece in enumerate(_read_pieces(content)) if is_it(*piece)), None)


def _read_first_pieces(content: bytes, count: int) -> list[tuple[str, float]]:
    """Return at most `count` pieces from the beginning of the vocabulary."""
    pieces: list[tuple[str, float]] = []
    key, decoder = _PIECES_KEY.search(content), json.JSONDecoder()
    if key is None:
        return []
    text = content[key.end() : key.end() + _FIRST_BYTES].decode("utf-8", "replace").lstrip()
    while len(pieces) < count:
        try:
            (piece, score), end = decoder.raw_decode(text)
        except ValueError:
            break
        pieces.append((str(piece), float(score)))
        text = text[end:].lstrip().removeprefix(",").lstrip()
    return pieces


def _read_pieces(content: bytes) -> list[tuple[str, float]]:
    return [(piece, score) for piece, score in decode_long_json(content.decode())["model"]["vocab"]]


def _read_id(settings: Mapping[str, Any], default: int) -> int:
    return read_size(settings, "unk_id", default, least=0, most=MOST_TOKENS, file=TOKENIZER_CONFIG)
