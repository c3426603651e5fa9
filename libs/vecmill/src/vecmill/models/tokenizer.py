"""The tokenizer of a model as transformers would put it together from the model's files.

Source of the rules: transformers 5.23 (`tokenization_utils_tokenizers.py`), sentence-transformers 6.2
(`base/modules/transformer.py`, `multi_vector_encoder/model.py`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vecmill.errors import CorruptModel
from vecmill.models.conversion import convert_vocabulary
from vecmill.models.frames import frame_texts
from vecmill.models.tokenizer_classes import apply_class
from vecmill.models.tokenizer_names import find_class

if TYPE_CHECKING:
    from vecmill.models.description import ModelDescription


def read_tokenizer(description: "ModelDescription") -> Any:
    """The `tokenizers.Tokenizer` of a model, which does not pad, and cuts texts as its file says.

    Raises `CorruptModel` if its file is none or lacks tokens, `UnsupportedModel` if none can be made of what
    there is.
    """
    import tokenizers

    path, config = description.tokenizer_file, description.tokenizer_config
    name = find_class(config, description.config)
    if path.name != "tokenizer.json":
        tokenizer = convert_vocabulary(path, name, config)
    else:
        tokenizer = _read(path)
        if description.special_tokens:  # static models read tokenizer.json without any class
            apply_class(tokenizer, name, config, path)
            _mark_special(tokenizer, config)
            frame_texts(tokenizer, name, config, path)
    tokenizer.encode_special_tokens = description.special_tokens and bool(config.get("split_special_tokens"))
    tokenizer.no_padding()  # that of a training run
    if description.lowercase and not _lowercases(tokenizer.normalizer):
        stages = [tokenizers.normalizers.Lowercase()]
        stages += [tokenizer.normalizer] if tokenizer.normalizer is not None else []
        tokenizer.normalizer = tokenizers.normalizers.Sequence(stages)
    if description.multi_vector is not None:
        _keep_whole(tokenizer, description.multi_vector.prefixes)
    return tokenizer


def _read(path: Path) -> Any:
    import tokenizers

    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise CorruptModel(f"{path} is no tokenizer: {error}. Download the model again.") from error


def _content(written: Any, default: str) -> str:
    content = written.get("content") if isinstance(written, dict) else written
    return content if isinstance(content, str) else default


def _mark_special(tokenizer: Any, config: Mapping[str, Any]) -> None:
    """Cut texts at tokens that only tokenizer_config.json calls special, if the vocabulary has them."""
    named = [value for key, value in config.items() if key.endswith("_token") and not key.startswith("add_")]
    for key in ("additional_special_tokens", "extra_special_tokens"):
        more = config.get(key) or ()
        named.extend(more.values() if isinstance(more, dict) else more)
    known, marked = tokenizer.get_vocab(), tokenizer.get_added_tokens_decoder().values()
    contents = {token.content for token in marked}
    for token in filter(None, (_content(value, "") for value in named)):
        if token in known and token not in contents:
            tokenizer.add_special_tokens([token])


def _keep_whole(tokenizer: Any, prefixes: tuple[str, ...]) -> None:
    """Make one token each of the markers that the vocabulary knows and that would be cut up."""
    import tokenizers

    known = tokenizer.get_vocab()
    for prompt in filter(str.split, prefixes):
        marker = next((text for text in (prompt, prompt.split(None, 1)[0]) if text in known), None)
        if marker is not None and tokenizer.encode(marker, add_special_tokens=False).tokens != [marker]:
            tokenizer.add_special_tokens([tokenizers.AddedToken(marker, normalized=False, special=True)])


def _lowercases(normalizer: Any) -> bool:
    """Whether a normalizer has a stage of its own for lower-casing, as the reference asks."""
    stages = normalizer if type(normalizer).__name__ == "Sequence" else [normalizer]
    return any(type(stage).__name__ == "Lowercase" for stage in stages)
