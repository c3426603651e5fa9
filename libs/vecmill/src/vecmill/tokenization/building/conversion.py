"""Builds the tokenizer of a model without tokenizer.json, by the rules of its class.

Source of the rules: transformers 5.23 (`tokenization_utils_base.py`, `tokenization_utils_tokenizers.py`).
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.directory import FileLimits
from vecmill.models.tokenizer_file import LARGEST_TOKENIZER, TOKENIZER_CONFIG
from vecmill.tokenization.building.class_names import CLASSES_IN_PYTHON, QWEN_CLASS, UNKNOWN_CLASSES
from vecmill.tokenization.building.classes import (
    CLASSES,
    NO_CLASS,
    TokenizerClass,
    apply_rules,
    mark_more,
    set_post_processor,
)
from vecmill.tokenization.building.special_tokens import (
    SpecialTokens,
    add_special_tokens_map,
    add_tokens,
    find_special_tokens,
)
from vecmill.tokenization.building.tiktoken_files import (
    QWEN_FILE,
    build_qwen,
    build_tiktoken,
    is_tiktoken_file,
)
from vecmill.tokenization.building.vocabulary_files import VocabularyFile, build_plain
from vecmill.values.messages import show_name

# These have no rules for tiktoken files, so the file is read as it is.
_TIKTOKEN_CLASSES = frozenset({"LlamaTokenizer"})
# Names of files that may be tiktoken files.
_TIKTOKEN_FILES = frozenset({"tokenizer.model", "tiktoken.model"})
_SWITCHES = frozenset({"add_bos_token", "add_eos_token"})


def convert_vocabulary(
    path: Path, name: str, config: Mapping[str, Any], limits: FileLimits = LARGEST_TOKENIZER
) -> Any:
    """Build the `tokenizers.Tokenizer` of the class `name` from the vocabulary file `path`.

    `config` is the whole tokenizer_config.json, `limits` those of each file. Raises `UnsupportedModel` if the
    class is not supported or does not read the file, `CorruptModel` if a file is broken.
    """
    if path.name == QWEN_FILE and name == QWEN_CLASS:
        return build_qwen(path, limits)
    known = CLASSES.get(name, NO_CLASS)
    is_supported = name not in UNKNOWN_CLASSES and path.name in known.files
    if is_supported and path.name in _TIKTOKEN_FILES and is_tiktoken_file(path, limits):
        return _convert_tiktoken(path, name, known, config, limits)
    if not is_supported or path.name == "tiktoken.model":
        raise _no_tokenizer(path, name)
    file = VocabularyFile(path, limits)
    settings = add_special_tokens_map(path.parent, config)
    special: SpecialTokens
    if known.build is None:
        tokenizer, defaults = build_plain(file, config)
        known = replace(known, special_tokens=defaults)
        special = find_special_tokens(defaults, settings)
    else:
        special = _find_special(path, known, settings)
        tokenizer = known.build(file, special, config)
    apply_rules(known, tokenizer, name, config, path)
    add_tokens(tokenizer, path.parent, settings, special, mask=known.mask)
    mark_more(known, tokenizer, config)
    set_post_processor(known, tokenizer, name, config, path)
    return tokenizer


def _convert_tiktoken(
    path: Path, name: str, known: TokenizerClass, config: Mapping[str, Any], limits: FileLimits
) -> Any:
    """Build the tokenizer of a tiktoken file, to which the rules of a class for texts do not apply."""
    if known is not NO_CLASS and name not in _TIKTOKEN_CLASSES:
        raise _no_tokenizer(path, name)
    settings = add_special_tokens_map(path.parent, config)
    tokenizer = build_tiktoken(path, limits, settings)
    add_tokens(
        tokenizer, path.parent, settings, find_special_tokens(known.special_tokens, settings), mask=known.mask
    )
    if _SWITCHES & config.keys():
        tokenizer.post_processor = None
        set_post_processor(known, tokenizer, name, config, path)
    return tokenizer


def _find_special(path: Path, known: TokenizerClass, settings: Mapping[str, Any]) -> SpecialTokens:
    """Return the special tokens of the class. Raises `CorruptModel` if the settings remove one."""
    special = find_special_tokens(known.special_tokens, settings)
    missing_roles = sorted(set(known.special_tokens) - set(special))
    if missing_roles:
        keys = ", ".join(f"{role}_token" for role in missing_roles)
        raise CorruptModel(f"{path.parent / TOKENIZER_CONFIG}: {keys} must be a string.")
    return special


def _no_tokenizer(path: Path, name: str) -> UnsupportedModel:
    if name in CLASSES_IN_PYTHON:
        return UnsupportedModel(
            f"{path.parent} has {path.name} and no tokenizer.json. The model's tokenizer class is {name}, "
            "which transformers runs in Python and cannot write as a tokenizer.json. Use another model."
        )
    return UnsupportedModel(
        f"{path.parent} has {path.name} and no tokenizer.json, from which no tokenizer of the class "
        f"{show_name(name) or 'that the model has'!r} can be built. Write one with "
        "`transformers.AutoTokenizer.from_pretrained(directory).save_pretrained(directory)`."
    )
