"""Tokenizers from the files of before tokenizer.json, as transformers' classes make them.

    vocab.txt                                 BERT's: one token a line
    vocab.json, merges.txt                    byte pairs: RoBERTa's, Qwen's
    sentencepiece.bpe.model and the like      pieces with scores: XLM-RoBERTa's, CamemBERT's, ALBERT's,
                                              DeBERTa's, T5's

Each class has its own way to lay the pieces out. Its special tokens, and what goes around texts, are in
`frames`; what it decides about letters and words is in `tokenizer_classes`.

Source of the rules: transformers 5.23, `tokenization_*.py` of each model, `convert_slow_tokenizer.py` and
`tokenization_utils_base.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.directory import MAX_TOKENIZER_BYTES, find_file, read_object
from vecmill.models.frames import (
    ROLES,
    SPECIAL_TOKENS,
    Special,
    find_special_tokens,
    frame_texts,
    read_written,
    token_content,
)
from vecmill.models.sentencepiece import read_sentencepieces
from vecmill.models.tokenizer_classes import BERT_CLASSES, apply_class

_EXTRA_IDS = 100  # of T5, where the settings do not say


@dataclass(frozen=True, slots=True)
class _Kind:
    """A class: the files that it is made from, and its pieces."""

    files: tuple[str, ...]
    make: Callable[[Path, Special, Mapping[str, Any]], Any]
    mask_takes_space: bool = False  # the one before it, where the settings do not say


def convert_vocabulary(path: Path, name: str, config: Mapping[str, Any]) -> Any:
    """The `tokenizers.Tokenizer` that the class called `name` makes of the vocabulary file `path`.

    `config` is the whole of tokenizer_config.json. Raises `UnsupportedModel` if the class is none of those
    above or the file is not of its kind, `CorruptModel` if a file is broken.
    """
    kind = _KINDS.get(name)
    if kind is None or path.name not in kind.files:
        raise UnsupportedModel(
            f"{path.parent} has {path.name} and no tokenizer.json, from which no tokenizer of the class "
            f"{name or 'that the model has'!r} can be made here. Write one with "
            "`transformers.AutoTokenizer.from_pretrained(directory).save_pretrained(directory)`."
        )
    written = read_written(path.parent, config)
    special = find_special_tokens(name, written)
    missing_roles = sorted(set(SPECIAL_TOKENS[name]) - set(special))
    if missing_roles:
        raise CorruptModel(f"{path.parent}: the {', '.join(missing_roles)} token must be a text.")
    tokenizer = kind.make(path, special, config)
    apply_class(tokenizer, name, config, path)
    _add_tokens(tokenizer, path.parent, written, special, kind)
    frame_texts(tokenizer, name, config, path)
    return tokenizer


def _add_tokens(
    tokenizer: Any, folder: Path, written: Mapping[str, Any], special: Special, kind: _Kind
) -> None:
    """Added tokens in the order of their numbers, then the special ones."""
    numbered = written.get("added_tokens_decoder")
    if numbered is None:
        named = {token_content(written.get(f"{role}_token")) for role in ROLES}  # defaults do not count
        numbered = {
            number: {"content": token, "special": token in named, "normalized": token not in named}
            for token, number in (read_object(folder, "added_tokens.json") or {}).items()
        }
    for number in sorted(numbered, key=int):
        token = _added_token(numbered[number])
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
    for role, content in special.items():
        value = written.get(f"{role}_token")
        default = {"lstrip": role == "mask" and kind.mask_takes_space}
        listed = [token for token in numbered.values() if token["content"] == content]
        flags = value if isinstance(value, Mapping) else next(iter(listed), default)
        token = _added_token({"normalized": False, **flags, "content": content, "special": True})
        tokenizer.add_special_tokens([token])
    more = written.get("additional_special_tokens") or written.get("extra_special_tokens") or ()
    for value in more.values() if isinstance(more, Mapping) else more:
        flags = value if isinstance(value, Mapping) else {"content": value, "normalized": False}
        tokenizer.add_special_tokens([_added_token({**flags, "special": True})])


def _added_token(written: Mapping[str, Any]) -> Any:
    import tokenizers

    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return tokenizers.AddedToken(
        str(written["content"]), **{name: bool(written[name]) for name in names if name in written}
    )


# Vocabularies


def _make_word_pieces(path: Path, special: Special, config: Mapping[str, Any]) -> Any:
    import tokenizers

    try:
        lines = path.read_text("utf-8").removesuffix("\n").split("\n")
    except (OSError, ValueError) as error:
        raise CorruptModel(
            f"{path} cannot be read as a vocabulary: {error}. Download the model again."
        ) from error
    vocabulary = {token: number for number, token in enumerate(lines)}
    missing = sorted(set(special.values()) - set(vocabulary))
    if missing:
        raise CorruptModel(f"{path} lacks {', '.join(missing)}. Download the model again.")
    return tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token=special["unk"]))


def _make_byte_pairs(path: Path, special: Special, config: Mapping[str, Any]) -> Any:
    import tokenizers

    vocabulary = _read_numbers(path)
    merges_file = find_file(path.parent, "merges.txt")
    if merges_file is None:
        raise CorruptModel(f"{path.parent / 'merges.txt'} is missing. Download the model again.")
    try:
        lines = merges_file.read_text("utf-8").split("\n")
        merges: Any = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
        model = tokenizers.models.BPE(
            vocab=vocabulary,
            merges=merges,
            continuing_subword_prefix="",
            end_of_word_suffix="",
            fuse_unk=False,
        )
    except Exception as error:  # the library raises nothing narrower
        raise CorruptModel(
            f"{merges_file} does not fit {path.name}: {error}. Download the model again."
        ) from error
    return tokenizers.Tokenizer(model)


def _read_numbers(path: Path) -> dict[str, int]:
    """Token -> number. Raises `CorruptModel`."""
    document = read_object(path.parent, path.name, max_bytes=MAX_TOKENIZER_BYTES) or {}
    if not document or not all(type(number) is int for number in document.values()):
        raise CorruptModel(f"{path} must number the tokens of a vocabulary. Download the model again.")
    return document


Pieces = list[tuple[str, float]]


def _make_pieces(lay: Callable[[Pieces, Special, Mapping[str, Any]], tuple[Pieces, int]]) -> Any:
    """What makes a tokenizer of pieces that `lay` puts into order; it says which one is unknown, too."""

    def make(path: Path, special: Special, config: Mapping[str, Any]) -> Any:
        import tokenizers

        found = read_sentencepieces(path)
        if not found.is_unigram:
            raise UnsupportedModel(
                f"{path}: sentencepiece models of other kinds than unigram are not supported."
            )
        pieces, unknown = lay(list(found.pieces), special, config)
        tokenizer = tokenizers.Tokenizer(
            tokenizers.models.Unigram(vocab=pieces, unk_id=unknown, byte_fallback=False)
        )
        if found.charsmap is not None:
            tokenizer.normalizer = tokenizers.normalizers.Precompiled(found.charsmap)
        added = [*found.added, *(piece for piece, _ in pieces if piece.startswith("<extra_id_"))]
        tokenizer.add_special_tokens([tokenizers.AddedToken(token, normalized=False) for token in added])
        return tokenizer

    return make


def _lay_roberta(pieces: Pieces, special: Special, config: Mapping[str, Any]) -> tuple[Pieces, int]:
    first = [(special[role], 0.0) for role in ("bos", "pad", "eos", "unk")]
    return [*first, *pieces[3:], (special["mask"], 0.0)], 3


def _lay_camembert(pieces: Pieces, special: Special, config: Mapping[str, Any]) -> tuple[Pieces, int]:
    first = [
        ("<s>NOTUSED", 0.0),
        (special["pad"], 0.0),
        ("</s>NOTUSED", 0.0),
        (special["unk"], 0.0),
        ("<unk>NOTUSED", -100.0),
    ]
    return [*first, *pieces[1:], (special["mask"], 0.0)], 3


def _lay_albert(pieces: Pieces, special: Special, config: Mapping[str, Any]) -> tuple[Pieces, int]:
    return pieces, 1


def _lay_deberta(pieces: Pieces, special: Special, config: Mapping[str, Any]) -> tuple[Pieces, int]:
    return pieces, next((number for number, (piece, _) in enumerate(pieces) if piece == special["unk"]), 1)


def _lay_t5(pieces: Pieces, special: Special, config: Mapping[str, Any]) -> tuple[Pieces, int]:
    count = int(config.get("extra_ids", _EXTRA_IDS))
    return [*pieces, *((f"<extra_id_{number}>", 0.0) for number in reversed(range(count)))], 2


_PIECES_FILES = ("sentencepiece.bpe.model",)

_KINDS: Mapping[str, _Kind] = MappingProxyType(
    {
        **dict.fromkeys(sorted(BERT_CLASSES), _Kind(("vocab.txt",), _make_word_pieces)),
        "RobertaTokenizer": _Kind(("vocab.json",), _make_byte_pairs),
        "Qwen2Tokenizer": _Kind(("vocab.json",), _make_byte_pairs),
        "XLMRobertaTokenizer": _Kind(_PIECES_FILES, _make_pieces(_lay_roberta)),
        "CamembertTokenizer": _Kind(_PIECES_FILES, _make_pieces(_lay_camembert), mask_takes_space=True),
        "AlbertTokenizer": _Kind(("spiece.model",), _make_pieces(_lay_albert)),
        "DebertaV2Tokenizer": _Kind(("spm.model",), _make_pieces(_lay_deberta)),
        "T5Tokenizer": _Kind(("spiece.model",), _make_pieces(_lay_t5)),
    }
)
VOCABULARY_FILES = ("vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model", "spm.model")
