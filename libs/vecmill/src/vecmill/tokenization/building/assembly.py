"""Builds the tokenizer of a described model: file, class rules, special tokens and lower-casing.

Source of the rules: transformers 5.23 (`tokenization_utils_tokenizers.py`), sentence-transformers 6.2
(`base/modules/transformer.py`, `multi_vector_encoder/model.py`).
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from vecmill.errors import CorruptModel, UnsupportedModel, one_line
from vecmill.models.directory import check_values
from vecmill.models.tokenizer_file import check_strings, find_members
from vecmill.tokenization.building.charsmaps import check_charsmaps
from vecmill.tokenization.building.class_rules import apply_class
from vecmill.tokenization.building.conversion import convert_vocabulary
from vecmill.tokenization.building.growth import check_growth, check_normalizer
from vecmill.tokenization.building.special_tokens import read_switch
from vecmill.tokenization.building.tokenizer_files import TOKENIZER_FILE, TokenizerFiles
from vecmill.values.messages import show

if TYPE_CHECKING:
    from vecmill.models.description import ModelDescription


def read_tokenizer(description: "ModelDescription") -> Any:
    """Build the `tokenizers.Tokenizer` of a model, without padding. Its file sets the truncation.

    Raises `CorruptModel` if the file is invalid or lacks tokens, `UnsupportedModel` if the tokenizer's class
    or vocabulary is not supported.
    """
    return build_tokenizer(TokenizerFiles.of(description))


def build_tokenizer(files: TokenizerFiles) -> Any:
    """Build the `tokenizers.Tokenizer` of these files. Raises the errors of `read_tokenizer`."""
    import tokenizers

    if files.name != TOKENIZER_FILE:
        tokenizer = convert_vocabulary(files)
    else:
        tokenizer = _parse(files)
        if files.has_class:
            tokenizer = apply_class(tokenizer, files)
    check_charsmaps(tokenizer.normalizer, files.path)
    splits = read_switch(files.config, "split_special_tokens", default=False)
    tokenizer.encode_special_tokens = files.has_class and splits
    tokenizer.no_padding()  # the file may have the padding of a training run
    if files.lowercase and not _lowercases(tokenizer.normalizer):
        stages = [tokenizers.normalizers.Lowercase()]
        stages += [tokenizer.normalizer] if tokenizer.normalizer is not None else []
        tokenizer.normalizer = tokenizers.normalizers.Sequence(stages)
    check_growth(tokenizer, files.path)
    _check_added_tokens(tokenizer, files.path)
    _add_markers(tokenizer, files.markers)
    return tokenizer


def _parse(files: TokenizerFiles) -> Any:
    import tokenizers

    path, content = files.path, files.content
    check_values(path, content, files.limits)
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


def _check_added_tokens(tokenizer: Any, path: Path) -> None:
    """Raise `UnsupportedModel` for an added token of which the normaliser leaves nothing.

    Such a token is found between any two characters. For some texts the library then never ends, and takes
    all memory.
    """
    if tokenizer.normalizer is None:
        return
    for token in tokenizer.get_added_tokens_decoder().values():
        if token.normalized and token.content and not tokenizer.normalizer.normalize_str(token.content):
            raise UnsupportedModel(
                f"{path}: the normaliser leaves nothing of the added token {show(token.content)}, which "
                "would then be found between any two characters. Remove the token, or set `normalized` of it "
                "to false."
            )


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
