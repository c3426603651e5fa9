"""Builds the tokenizer of a model without tokenizer.json, by the rules of its class.

Source of the rules: transformers 5.23 (`tokenization_utils_base.py`, `tokenization_utils_tokenizers.py`).
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.tokenizer_file import TOKENIZER_CONFIG
from vecmill.tokenization.building.class_names import (
    CLASSES_IN_PYTHON,
    QWEN_CLASS,
    SIGLIP_CLASS,
    UNKNOWN_CLASSES,
)
from vecmill.tokenization.building.class_rules import SWITCHES, finish, set_post_processor
from vecmill.tokenization.building.classes import CLASSES, NO_CLASS, TokenizerClass, refuse_siglip
from vecmill.tokenization.building.special_tokens import FileTokens, SpecialTokens, read_tokens, text_of
from vecmill.tokenization.building.tiktoken_files import (
    QWEN_FILE,
    build_qwen,
    build_tiktoken,
    is_tiktoken_file,
)
from vecmill.tokenization.building.tokenizer_files import TokenizerFiles
from vecmill.tokenization.building.vocabulary_files import build_plain
from vecmill.values.messages import show_name

# These have no rules for tiktoken files, so the file is read as it is.
_TIKTOKEN_CLASSES = frozenset({"LlamaTokenizer"})
# Names of files that may be tiktoken files.
_TIKTOKEN_FILES = frozenset({"tokenizer.model", "tiktoken.model"})


def convert_vocabulary(files: TokenizerFiles) -> Any:
    """Build the `tokenizers.Tokenizer` of a class from vocabulary files.

    Raises `UnsupportedModel` if the class is not supported or does not read the file, `CorruptModel` if a
    file is broken.
    """
    name = files.class_name
    if files.name == QWEN_FILE and name == QWEN_CLASS:
        return build_qwen(files)
    known = CLASSES.get(name, NO_CLASS)
    is_supported = name not in UNKNOWN_CLASSES and files.name in known.files
    if is_supported and files.name in _TIKTOKEN_FILES and is_tiktoken_file(files.content):
        return _convert_tiktoken(files, known)
    if not is_supported or files.name == "tiktoken.model":
        raise _no_tokenizer(files.path, name)
    said = read_tokens(files)
    if known.build is None:
        built, roles = build_plain(files, said)
        known = replace(known, tokens=replace(known.tokens, defaults=roles))
    else:
        built = known.build(files, _find_special(files.path, known, said), said.settings)
    finish(known, built.tokenizer, said.merge(known.tokens, pieces=built.pieces), files)
    return built.tokenizer


def _convert_tiktoken(files: TokenizerFiles, known: TokenizerClass) -> Any:
    """Build the tokenizer of a tiktoken file, to which the rules of a class for texts do not apply."""
    if known is not NO_CLASS and files.class_name not in _TIKTOKEN_CLASSES:
        raise _no_tokenizer(files.path, files.class_name)
    said = read_tokens(files)
    tokenizer = build_tiktoken(files, said)
    tokens = said.merge(known.tokens)
    tokens.add_to(tokenizer, known.tokens)
    if SWITCHES & files.config.keys():
        tokenizer.post_processor = None
        set_post_processor(known, tokenizer, tokens, files)
    return tokenizer


def _find_special(path: Path, known: TokenizerClass, said: FileTokens) -> SpecialTokens:
    """Return the special tokens of the class. Raises `CorruptModel` if the settings remove one."""
    named = said.name_roles(known.tokens)
    missing = sorted(f"{role}_token" for role in known.tokens.defaults if f"{role}_token" not in named)
    if missing:
        raise CorruptModel(f"{path.parent / TOKENIZER_CONFIG}: {', '.join(missing)} must be a string.")
    return {role: text_of(named[f"{role}_token"]) for role in known.tokens.defaults}


def _no_tokenizer(path: Path, name: str) -> UnsupportedModel:
    if name == SIGLIP_CLASS:
        return refuse_siglip(path)
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
