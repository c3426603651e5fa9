"""Applies the rules of a tokenizer class to a tokenizer: normalisation, added tokens and special tokens."""

from collections.abc import Mapping
from typing import Any

from vecmill.errors import CorruptModel, UnsupportedModel, one_line
from vecmill.tokenization.building.class_names import ends_texts
from vecmill.tokenization.building.classes import QWEN_ENDING_TEXTS, TokenizerClass, check_class, find_rules
from vecmill.tokenization.building.special_tokens import (
    MergedTokens,
    read_switch,
    read_tokens,
)
from vecmill.tokenization.building.tokenizer_files import TOKENIZER_FILE, TokenizerFiles
from vecmill.tokenization.building.unknown_pieces import (
    set_unknown,
)
from vecmill.values.messages import show_name

SWITCHES = frozenset({"add_bos_token", "add_eos_token"})


def apply_class(tokenizer: Any, files: TokenizerFiles) -> Any:
    """Return the tokenizer of the class of `files` for a tokenizer that was read from tokenizer.json.

    Raises `UnsupportedModel` if the rules of the class are not supported, or for another kind of vocabulary,
    `CorruptModel` if a file is broken or tokens are missing.
    """
    check_class(files.class_name, files.path)
    known = find_rules(files)
    padding = (tokenizer.padding or {}).get("pad_token")
    tokens = read_tokens(files).merge(known.tokens, padding=padding)
    if known.apply is not None:
        tokenizer = _without_added_tokens(tokenizer)
    finish(known, tokenizer, tokens, files)
    return tokenizer


def finish(known: TokenizerClass, tokenizer: Any, tokens: MergedTokens, files: TokenizerFiles) -> None:
    """Change a tokenizer with a vocabulary of the class `known` into one of that class.

    Raises `UnsupportedModel` if the class needs another kind of vocabulary, `CorruptModel` if tokens are
    missing.
    """
    _apply_rules(known, tokenizer, tokens, files)
    tokens.add_to(tokenizer, known.tokens)
    set_post_processor(known, tokenizer, tokens, files)


def _without_added_tokens(tokenizer: Any) -> Any:
    """Return a tokenizer with all of `tokenizer` but its added tokens."""
    import tokenizers

    bare = tokenizers.Tokenizer(tokenizer.model)
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        setattr(bare, part, getattr(tokenizer, part))
    if tokenizer.truncation is not None:
        bare.enable_truncation(**tokenizer.truncation)
    return bare


def _apply_rules(known: TokenizerClass, tokenizer: Any, tokens: MergedTokens, files: TokenizerFiles) -> None:
    """Set the normalisation and word splitting of the class."""
    if known.apply is None:
        return
    found = type(tokenizer.model).__name__
    if found != known.kind:
        raise UnsupportedModel(
            f"{files.path} has a vocabulary of the kind {found}, but the model's tokenizer class is "
            f"{files.class_name}, which reads {known.kind}. To use that file unchanged, set tokenizer_class "
            "in tokenizer_config.json to 'PreTrainedTokenizerFast'."
        )
    if known.find_unknown is not None and files.name == TOKENIZER_FILE:
        number = known.find_unknown(files.content, tokens.settings)
        set_unknown(tokenizer, number, files.content, files.path)
    known.apply(tokenizer, tokens.settings)


def _ends_texts(tokenizer: Any, config: Mapping[str, Any]) -> bool:
    """Return whether replaced code adds an end-of-text token that tokenizer.json does not add."""
    is_template = type(tokenizer.post_processor).__name__ == "TemplateProcessing"
    asked = ends_texts(config) and read_switch(config, "add_eos_token", default=False)
    return asked and not is_template


def set_post_processor(
    known: TokenizerClass, tokenizer: Any, tokens: MergedTokens, files: TokenizerFiles
) -> None:
    """Set the post-processor of the class, which adds special tokens to texts, if it has one.

    Raises `CorruptModel` if the vocabulary, or the model's table, lacks the tokens.
    """
    if _ends_texts(tokenizer, files.config):
        known = QWEN_ENDING_TEXTS
    elif known.add is None or (known.prefers_file and tokenizer.post_processor is not None):
        return
    assert known.add is not None
    special = tokens.special
    missing = sorted(
        f"{show_name(token)} ({role}_token){lack}"
        for role in known.added
        if (lack := _find_lack(tokenizer, token := special.get(role, "none"), files.rows)) is not None
    )
    if missing:
        raise CorruptModel(
            f"{files.path} lacks {', '.join(missing)}, which {files.class_name} adds to texts. Download the "
            "model again, or name its special tokens in tokenizer_config.json."
        )
    # transformers ignores these beside a tokenizer.json.
    switches = SWITCHES if files.name == TOKENIZER_FILE else frozenset()
    heeded = {key: value for key, value in tokens.settings.items() if key not in switches}
    try:
        tokenizer.post_processor = known.add(tokenizer, special, heeded)
    except CorruptModel:
        raise
    except Exception as error:  # the library raises no narrower class
        raise CorruptModel(
            f"{files.path}: {files.class_name} cannot put its special tokens around texts: {one_line(error)}."
        ) from error


def _find_lack(tokenizer: Any, token: str, rows: int) -> str | None:
    """Return `None` if a token has a row in the model's table, else what a message says after its name.

    A token that was added may be after the last row.
    """
    number = tokenizer.token_to_id(token)
    if number is None:
        return ""
    return None if number < rows else f" with an id below the vocab_size {rows} of config.json"
