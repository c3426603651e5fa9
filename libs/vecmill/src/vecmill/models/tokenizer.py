"""The tokenizer of a model as transformers would put it together from the model's files.

Where there is only the vocabulary, the classes of BERT's kind are known well enough to be made from it.

Source of the rules: transformers 5.23 (`models/bert/tokenization_bert.py`), sentence-transformers 6.2
(`base/modules/transformer.py`, `multi_vector_encoder/model.py`).
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.tokenizer_classes import BERT_CLASSES, apply_class, find_class, set_bert_letters

if TYPE_CHECKING:
    from vecmill.models.description import ModelDescription

_BERT_TOKENS: Mapping[str, str] = MappingProxyType(
    {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
)


def read_tokenizer(description: "ModelDescription") -> Any:
    """The `tokenizers.Tokenizer` of a model, which neither cuts nor pads.

    Raises `CorruptModel` if its file is none, `UnsupportedModel` if a vocabulary alone is not enough.
    """
    import tokenizers

    path = description.tokenizer_file
    if path.name == "vocab.txt":
        tokenizer = _make_from_vocabulary(path, description)
    else:
        tokenizer = _read(path)
        if description.special_tokens:  # static models read tokenizer.json without any class
            name = find_class(description.tokenizer_config, description.config)
            apply_class(tokenizer, name, description.tokenizer_config)
            _mark_special(tokenizer, description.tokenizer_config)
            tokenizer.encode_special_tokens = bool(description.tokenizer_config.get("split_special_tokens"))
    # Some files carry the truncation and padding of a training run.
    tokenizer.no_truncation()
    tokenizer.no_padding()
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


def _make_from_vocabulary(path: Path, description: "ModelDescription") -> Any:
    """A tokenizer of BERT's kind from one token a line."""
    import tokenizers

    if find_class(description.tokenizer_config, description.config) not in BERT_CLASSES:
        raise UnsupportedModel(
            f"{path.parent} has a vocabulary and no tokenizer.json, which is enough for BERT's "
            "tokenizers alone. "
            "Write one with "
            "`transformers.AutoTokenizer.from_pretrained(directory).save_pretrained(directory)`."
        )
    vocabulary = _read_vocabulary(path)
    named = {
        role: _content(description.tokenizer_config.get(role), token) for role, token in _BERT_TOKENS.items()
    }
    missing = sorted(set(named.values()) - set(vocabulary))
    if missing:
        raise CorruptModel(f"{path} lacks {', '.join(missing)}. Download the model again.")
    model = tokenizers.models.WordPiece(vocabulary, unk_token=named["unk_token"])
    tokenizer = tokenizers.Tokenizer(model)
    set_bert_letters(tokenizer, description.tokenizer_config)
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    tokenizer.add_special_tokens(list(named.values()))
    _add_tokens(tokenizer, description.tokenizer_config.get("added_tokens_decoder") or {})
    start, end = named["cls_token"], named["sep_token"]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{start}:0 $A:0 {end}:0",
        pair=f"{start}:0 $A:0 {end}:0 $B:1 {end}:1",
        special_tokens=[(start, vocabulary[start]), (end, vocabulary[end])],
    )
    return tokenizer


def _read_vocabulary(path: Path) -> dict[str, int]:
    try:
        lines = path.read_text("utf-8").removesuffix("\n").split("\n")
    except (OSError, ValueError) as error:
        raise CorruptModel(
            f"{path} cannot be read as a vocabulary: {error}. Download the model again."
        ) from error
    return {token: number for number, token in enumerate(lines)}


def _content(written: Any, default: str) -> str:
    content = written.get("content") if isinstance(written, dict) else written
    return content if isinstance(content, str) else default


def _add_tokens(tokenizer: Any, written: Mapping[str, Any]) -> None:
    """Add tokens beside the vocabulary, in the order of their numbers."""
    import tokenizers

    for number in sorted(written, key=int):
        flags = {
            name: bool(written[number].get(name, False))
            for name in ("single_word", "lstrip", "rstrip", "normalized", "special")
        }
        token = tokenizers.AddedToken(str(written[number]["content"]), **flags)
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])


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
