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

# The key of the unknown piece's id; a piece of that name has no number after a colon.
_KEY = re.compile(rb'"unk_id"\s*:\s*(null|[0-9]+)')

# The content of tokenizer.json, the `tokenizers.Tokenizer` of it, the settings of a class -> the id.
FindUnknown = Callable[[bytes, Any, Mapping[str, Any]], int]


def fixed_unknown(number: int) -> FindUnknown:
    """Return the rule of a class whose unknown piece has the id `number`."""
    return lambda content, tokenizer, settings: number


def named_unknown(content: bytes, tokenizer: Any, settings: Mapping[str, Any]) -> int:
    """Return the id of the unknown token, or 0 if the vocabulary lacks it: the rule of CamemBERT."""
    return tokenizer.model.token_to_id(settings["unk_token"]) or 0


def configured_unknown(content: bytes, tokenizer: Any, settings: Mapping[str, Any]) -> int:
    """Return the id that tokenizer_config.json names: the rule of XLNet."""
    return _read_id(settings, 0)


def unscored_unknown(content: bytes, tokenizer: Any, settings: Mapping[str, Any]) -> int:
    """Return the id of the unknown token if its score is 0, or the configured one: the rule of DeBERTa."""
    token = settings["unk_token"]
    number = tokenizer.model.token_to_id(token)
    spellings = {json.dumps(token).encode(), json.dumps(token, ensure_ascii=False).encode()}
    pieces = b"|".join(map(re.escape, spellings))
    scores = re.findall(rb"\[\s*(?:" + pieces + rb")\s*,\s*([-+.0-9eE]+)", content)
    is_unscored = number is not None and any(float(score) == 0 for score in scores)
    return int(number) if is_unscored else _read_id(settings, 1)


def set_unknown(tokenizer: Any, number: int, content: bytes, path: Path) -> None:
    """Let the piece `number` be the unknown one of a tokenizer that was read from `content`.

    Raises `CorruptModel`, which names `path`, if there is no such piece.
    """
    from tokenizers import models

    found = _KEY.findall(content)
    if found == [b"%d" % number]:
        return
    vocabulary = [(piece, score) for piece, score in json.loads(content)["model"]["vocab"]]
    try:
        tokenizer.model = models.Unigram(vocab=vocabulary, unk_id=number, byte_fallback=False)
    except Exception as error:  # the library raises no narrower class
        raise CorruptModel(f"{path}: the unknown piece cannot be {number}: {one_line(error)}.") from error


def _read_id(settings: Mapping[str, Any], default: int) -> int:
    return read_size(settings, "unk_id", default, least=0, most=MOST_TOKENS, file=TOKENIZER_CONFIG)
