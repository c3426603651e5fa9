"""Builds the tokenizer of a described model: file, class rules, special tokens and lower-casing.

Source of the rules: transformers 5.23 (`tokenization_utils_tokenizers.py`), sentence-transformers 6.2
(`base/modules/transformer.py`, `multi_vector_encoder/model.py`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vecmill.errors import CorruptModel, UnsupportedModel, one_line
from vecmill.models.directory import FileLimits, check_values, read_file
from vecmill.models.tokenizer_file import (
    TOKENIZER_CONFIG,
    check_strings,
    check_token,
    find_members,
    read_token,
    tokenizer_limits,
)
from vecmill.models.weights import count_bytes
from vecmill.tokenization.building.charsmaps import check_charsmaps
from vecmill.tokenization.building.class_names import find_class
from vecmill.tokenization.building.classes import (
    apply_rules,
    check_class,
    find_rules,
    mark_more,
    set_post_processor,
)
from vecmill.tokenization.building.conversion import convert_vocabulary
from vecmill.tokenization.building.growth import check_growth, check_normalizer
from vecmill.tokenization.building.special_tokens import ROLES, list_more_tokens, read_switch

if TYPE_CHECKING:
    from vecmill.models.description import ModelDescription


def read_tokenizer(description: "ModelDescription") -> Any:
    """Build the `tokenizers.Tokenizer` of a model, without padding. Its file sets the truncation.

    Raises `CorruptModel` if the file is invalid or lacks tokens, `UnsupportedModel` if the tokenizer's class
    or vocabulary is not supported.
    """
    import tokenizers

    path, config = description.tokenizer_file, description.tokenizer_config
    name = find_class(config, description.config)
    # Each token has a row of weights, so a wrong vocab_size does not lift the limits.
    limits = tokenizer_limits(min(description.vocab_size, count_bytes(description.weights_files)))
    # StaticEmbedding reads the file without a tokenizer class, and so without the class's settings.
    has_class = description.special_tokens or bool(config)
    if path.name != "tokenizer.json":
        tokenizer = convert_vocabulary(path, name, config, limits)
    else:
        tokenizer = _read(path, limits)
        if has_class:
            check_class(name, path)
            known = find_rules(tokenizer, name)
            apply_rules(known, tokenizer, name, config, path)
            _mark_special(tokenizer, config)
            mark_more(known, tokenizer, config)
            set_post_processor(known, tokenizer, name, config, path)
    check_charsmaps(tokenizer.normalizer, path)
    splits = read_switch(config, "split_special_tokens", default=False)
    tokenizer.encode_special_tokens = has_class and splits
    tokenizer.no_padding()  # the file may have the padding of a training run
    if description.lowercase and not _lowercases(tokenizer.normalizer):
        stages = [tokenizers.normalizers.Lowercase()]
        stages += [tokenizer.normalizer] if tokenizer.normalizer is not None else []
        tokenizer.normalizer = tokenizers.normalizers.Sequence(stages)
    check_growth(tokenizer, path)
    if description.multi_vector is not None:
        _add_markers(tokenizer, description.multi_vector.prefixes)
    return tokenizer


def _read(path: Path, limits: FileLimits) -> Any:
    import tokenizers

    content = read_file(path, limits.max_bytes)
    check_values(path, content, limits)
    check_strings(path, content)
    try:
        # The library normalises added tokens while it reads them.
        for state in find_members(content, "normalizer"):
            if state.strip() != b"null":
                normalizer = tokenizers.normalizers.Sequence([])
                normalizer.__setstate__(state)
                check_charsmaps(normalizer, path)
                check_normalizer(normalizer, path)
        return tokenizers.Tokenizer.from_buffer(content)
    except (CorruptModel, UnsupportedModel):
        raise
    except Exception as error:  # the library raises no narrower class
        raise CorruptModel(
            f"{path} is not a tokenizer: {one_line(error)}. Download the model again."
        ) from error


def _mark_special(tokenizer: Any, config: Mapping[str, Any]) -> None:
    """Mark the special tokens of tokenizer_config.json as special, if the vocabulary has them."""
    roles = {f"{role}_token" for role in ROLES}
    # Other keys that end alike may have values of any kind.
    named = [
        read_token(config, key, TOKENIZER_CONFIG)
        for key, value in config.items()
        if key in roles or (key.endswith("_token") and isinstance(value, str | dict))
    ]
    named += [check_token(value, name) for name, value in list_more_tokens(config)]
    known, marked = tokenizer.get_vocab(), tokenizer.get_added_tokens_decoder().values()
    contents = {token.content for token in marked}
    for token in filter(None, named):
        if token in known and token not in contents:
            tokenizer.add_special_tokens([token])


def _add_markers(tokenizer: Any, prefixes: tuple[str, ...]) -> None:
    """Add as special tokens the prompt markers of the vocabulary that the tokenizer would split."""
    import tokenizers

    for prompt in filter(str.split, prefixes):
        texts = (prompt, prompt.split(None, 1)[0])
        marker = next((text for text in texts if tokenizer.token_to_id(text) is not None), None)
        if marker is None:
            continue
        (encoding,) = tokenizer.encode_batch([marker], add_special_tokens=False)
        if encoding.tokens != [marker]:
            tokenizer.add_special_tokens([tokenizers.AddedToken(marker, normalized=False, special=True)])


def _lowercases(normalizer: Any) -> bool:
    """Return whether a normalizer has a `Lowercase` stage, as sentence-transformers checks."""
    stages = normalizer if type(normalizer).__name__ == "Sequence" else [normalizer]
    return any(type(stage).__name__ == "Lowercase" for stage in stages)
