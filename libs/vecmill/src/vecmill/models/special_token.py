"""Reads the special tokens that tokenizer_config.json and special_tokens_map.json name."""

from collections.abc import Mapping
from typing import Any

from vecmill.models.config_fields import File, check_text

TOKENIZER_CONFIG = "tokenizer_config.json"
SPECIAL_TOKENS_MAP = "special_tokens_map.json"


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
