"""The special tokens of a model, from tokenizer_config.json and the files beside it.

Source of the rules: transformers 5.23, `tokenization_utils_base.py`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vecmill.errors import CorruptModel
from vecmill.models.config_fields import check_token_number, read_flag, read_mapping
from vecmill.models.directory import read_object
from vecmill.models.tokenizer_file import SPECIAL_TOKENS_MAP, TOKENIZER_CONFIG, check_token, read_token
from vecmill.values.messages import show

SpecialTokens = Mapping[str, str]
"""Role -> token, in the order in which transformers adds the tokens."""

ADDED_TOKENS = "added_tokens.json"
_ID_DIGITS = 10
ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")


def add_special_tokens_map(folder: Path, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `config`, updated by special_tokens_map.json unless `config` lists added tokens."""
    if "added_tokens_decoder" in config:
        return config
    return {**config, **(read_object(folder, SPECIAL_TOKENS_MAP) or {})}


def find_special_tokens(defaults: SpecialTokens, settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens of `settings`, with the `defaults` of a class.

    `settings` is the result of `add_special_tokens_map`.
    """
    return {
        role: content
        for role in ROLES
        if (content := _read_role(settings, role, defaults.get(role))) is not None
    }


def list_more_tokens(settings: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the additional special tokens, each with its place in tokenizer_config.json.

    Raises `CorruptModel` if they are neither a list nor an object.
    """
    found: list[tuple[str, Any]] = []
    for key in ("additional_special_tokens", "extra_special_tokens"):
        more = settings.get(key) or []
        if not isinstance(more, list | dict):
            raise CorruptModel(f"{TOKENIZER_CONFIG}: {key} must be a list or an object of tokens.")
        values = more.values() if isinstance(more, dict) else more
        found += [(f"{TOKENIZER_CONFIG}: {key}", value) for value in values]
    return found


def lists_more_tokens(config: Mapping[str, Any]) -> bool:
    """Return whether tokenizer_config.json has a list of additional special tokens, which may be empty.

    Such a list replaces those of a class, and the control tokens of a sentencepiece model.
    """
    keys = ("additional_special_tokens", "extra_special_tokens")
    return any(key in config and not isinstance(config[key], Mapping) for key in keys)


def _read_role(settings: Mapping[str, Any], role: str, default: str | None) -> str | None:
    key = f"{role}_token"
    return read_token(settings, key, TOKENIZER_CONFIG) if key in settings else default


def read_switch(config: Mapping[str, Any], key: str, *, default: bool) -> bool:
    """Read true or false of tokenizer_config.json. Null is false, as in transformers' classes."""
    is_null = key in config and config[key] is None
    return not is_null and read_flag(config, key, default=default, file=TOKENIZER_CONFIG)


def add_tokens(
    tokenizer: Any,
    folder: Path,
    settings: Mapping[str, Any],
    special: SpecialTokens,
    *,
    mask: Mapping[str, bool],
) -> None:
    """Add the added tokens in the order of their ids, then the special tokens.

    `mask` has the flags of a mask token that no file describes. Raises `CorruptModel`.
    """
    numbered = number_added(folder, settings)
    for _, flags in numbered:
        token = _added_token(flags)
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
    for role, text in special.items():
        value = settings.get(f"{role}_token")
        default = mask if role == "mask" else {}
        listed = [token for _, token in numbered if token["content"] == text]
        flags = value if isinstance(value, Mapping) else next(iter(listed), default)
        token = _added_token({"normalized": False, **flags, "content": text, "special": True})
        tokenizer.add_special_tokens([token])
    for name, value in list_more_tokens(settings):
        content = check_token(value, name)
        if content is None:
            continue
        flags = value if isinstance(value, Mapping) else {"content": content, "normalized": False}
        tokenizer.add_special_tokens([_added_token({**flags, "special": True})])


def number_added(folder: Path, settings: Mapping[str, Any]) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the ids and the settings of the added tokens, by their ids. Raises `CorruptModel`."""
    key = "added_tokens_decoder"
    numbered: dict[str, Any]
    if settings.get(key) is not None:
        name = f"{TOKENIZER_CONFIG}: {key}"
        numbered = dict(read_mapping(settings, key, file=TOKENIZER_CONFIG))
    else:
        name = ADDED_TOKENS
        tokens = read_object(folder, ADDED_TOKENS) or {}
        ids = {
            check_token_number(number, f"{name}: {show(token)}"): token for token, number in tokens.items()
        }
        # Without defaults.
        named = {read_token(settings, f"{role}_token", TOKENIZER_CONFIG) for role in ROLES}
        numbered = {
            str(number): {"content": token, "special": token in named, "normalized": token not in named}
            for number, token in ids.items()
        }
    found = []
    for number, token in numbered.items():
        if not (number.isascii() and number.isdecimal() and len(number) < _ID_DIGITS):
            raise CorruptModel(f"{name}: the key {show(number)} is not the id of a token.")
        if not isinstance(token, Mapping) or check_token(token, f"{name}.{number}.content") is None:
            raise CorruptModel(f"{name}.{number}: content must be a string.")
        found.append((int(number), token))
    return sorted(found, key=lambda entry: entry[0])


def _added_token(settings: Mapping[str, Any]) -> Any:
    import tokenizers

    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    name = f"{TOKENIZER_CONFIG}: the token {show(settings['content'])}"
    flags = {flag: read_flag(settings, flag, default=False, file=name) for flag in names if flag in settings}
    return tokenizers.AddedToken(settings["content"], **flags)
