"""Builds tokenizers from vocabulary files older than tokenizer.json, as transformers' classes do.

    vocab.txt                                 one token per line: BERT
    vocab.json, merges.txt                    byte pairs: RoBERTa, Qwen
    sentencepiece.bpe.model and similar       pieces with scores: XLM-RoBERTa, CamemBERT, ALBERT, DeBERTa, T5

Each class arranges the pieces in its own order. `special_tokens` adds the special tokens of the class.
`classes` applies its other rules.

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
from vecmill.tokenization.building.classes import BERT_CLASSES, apply_class
from vecmill.tokenization.building.sentencepiece_file import read_sentencepieces
from vecmill.tokenization.building.special_tokens import (
    ROLES,
    SPECIAL_TOKENS,
    SpecialTokens,
    add_special_tokens_map,
    find_special_tokens,
    set_post_processor,
    token_content,
)

_EXTRA_IDS = 100  # the default of T5


@dataclass(frozen=True, slots=True)
class _Converter:
    """The files of a tokenizer class, and the function that builds a tokenizer from them."""

    files: tuple[str, ...]
    make: Callable[[Path, SpecialTokens, Mapping[str, Any]], Any]
    mask_strips_left: bool = False  # the default of the mask token's `lstrip`


def convert_vocabulary(path: Path, name: str, config: Mapping[str, Any]) -> Any:
    """Build the `tokenizers.Tokenizer` of the class `name` from the vocabulary file `path`.

    `config` is the whole tokenizer_config.json. Raises `UnsupportedModel` if the class is not supported or
    does not read the file, `CorruptModel` if a file is broken.
    """
    converter = _CONVERTERS.get(name)
    if converter is None or path.name not in converter.files:
        raise UnsupportedModel(
            f"{path.parent} has {path.name} and no tokenizer.json, from which no tokenizer of the class "
            f"{name or 'that the model has'!r} can be built. Write one with "
            "`transformers.AutoTokenizer.from_pretrained(directory).save_pretrained(directory)`."
        )
    settings = add_special_tokens_map(path.parent, config)
    special = find_special_tokens(name, settings)
    missing_roles = sorted(set(SPECIAL_TOKENS[name]) - set(special))
    if missing_roles:
        raise CorruptModel(f"{path.parent}: the {', '.join(missing_roles)} token must be a string.")
    tokenizer = converter.make(path, special, config)
    apply_class(tokenizer, name, config, path)
    _add_tokens(tokenizer, path.parent, settings, special, converter)
    set_post_processor(tokenizer, name, config, path)
    return tokenizer


def _add_tokens(
    tokenizer: Any, folder: Path, settings: Mapping[str, Any], special: SpecialTokens, converter: _Converter
) -> None:
    """Add the added tokens in the order of their ids, then the special tokens."""
    numbered = settings.get("added_tokens_decoder")
    if numbered is None:
        named = {token_content(settings.get(f"{role}_token")) for role in ROLES}  # without defaults
        numbered = {
            number: {"content": token, "special": token in named, "normalized": token not in named}
            for token, number in (read_object(folder, "added_tokens.json") or {}).items()
        }
    for number in sorted(numbered, key=int):
        token = _added_token(numbered[number])
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
    for role, content in special.items():
        value = settings.get(f"{role}_token")
        default = {"lstrip": role == "mask" and converter.mask_strips_left}
        listed = [token for token in numbered.values() if token["content"] == content]
        flags = value if isinstance(value, Mapping) else next(iter(listed), default)
        token = _added_token({"normalized": False, **flags, "content": content, "special": True})
        tokenizer.add_special_tokens([token])
    more = settings.get("additional_special_tokens") or settings.get("extra_special_tokens") or ()
    for value in more.values() if isinstance(more, Mapping) else more:
        flags = value if isinstance(value, Mapping) else {"content": value, "normalized": False}
        tokenizer.add_special_tokens([_added_token({**flags, "special": True})])


def _added_token(settings: Mapping[str, Any]) -> Any:
    import tokenizers

    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return tokenizers.AddedToken(
        str(settings["content"]), **{name: bool(settings[name]) for name in names if name in settings}
    )


# Vocabularies


def _make_word_pieces(path: Path, special: SpecialTokens, config: Mapping[str, Any]) -> Any:
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


def _make_byte_pairs(path: Path, special: SpecialTokens, config: Mapping[str, Any]) -> Any:
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
    except Exception as error:  # the library raises no narrower class
        raise CorruptModel(
            f"{merges_file} does not fit {path.name}: {error}. Download the model again."
        ) from error
    return tokenizers.Tokenizer(model)


def _read_numbers(path: Path) -> dict[str, int]:
    """Read a JSON object of token -> id. Raises `CorruptModel` if the file is broken."""
    document = read_object(path.parent, path.name, max_bytes=MAX_TOKENIZER_BYTES) or {}
    if not document or not all(type(number) is int for number in document.values()):
        raise CorruptModel(f"{path} must number the tokens of a vocabulary. Download the model again.")
    return document


Pieces = list[tuple[str, float]]


def _make_pieces(arrange: Callable[[Pieces, SpecialTokens, Mapping[str, Any]], tuple[Pieces, int]]) -> Any:
    """Return a builder of unigram tokenizers; `arrange` returns the pieces and the unknown token's id."""

    def make(path: Path, special: SpecialTokens, config: Mapping[str, Any]) -> Any:
        import tokenizers

        found = read_sentencepieces(path)
        if not found.is_unigram:
            raise UnsupportedModel(f"{path}: only unigram models of sentencepiece are supported.")
        pieces, unknown = arrange(list(found.pieces), special, config)
        tokenizer = tokenizers.Tokenizer(
            tokenizers.models.Unigram(vocab=pieces, unk_id=unknown, byte_fallback=False)
        )
        if found.charsmap is not None:
            tokenizer.normalizer = tokenizers.normalizers.Precompiled(found.charsmap)
        added = [*found.added, *(piece for piece, _ in pieces if piece.startswith("<extra_id_"))]
        tokenizer.add_special_tokens([tokenizers.AddedToken(token, normalized=False) for token in added])
        return tokenizer

    return make


def _arrange_roberta(pieces: Pieces, special: SpecialTokens, config: Mapping[str, Any]) -> tuple[Pieces, int]:
    first = [(special[role], 0.0) for role in ("bos", "pad", "eos", "unk")]
    return [*first, *pieces[3:], (special["mask"], 0.0)], 3


def _arrange_camembert(
    pieces: Pieces, special: SpecialTokens, config: Mapping[str, Any]
) -> tuple[Pieces, int]:
    first = [
        ("<s>NOTUSED", 0.0),
        (special["pad"], 0.0),
        ("</s>NOTUSED", 0.0),
        (special["unk"], 0.0),
        ("<unk>NOTUSED", -100.0),
    ]
    return [*first, *pieces[1:], (special["mask"], 0.0)], 3


def _arrange_albert(pieces: Pieces, special: SpecialTokens, config: Mapping[str, Any]) -> tuple[Pieces, int]:
    return pieces, 1


def _arrange_deberta(pieces: Pieces, special: SpecialTokens, config: Mapping[str, Any]) -> tuple[Pieces, int]:
    return pieces, next((number for number, (piece, _) in enumerate(pieces) if piece == special["unk"]), 1)


def _arrange_t5(pieces: Pieces, special: SpecialTokens, config: Mapping[str, Any]) -> tuple[Pieces, int]:
    count = int(config.get("extra_ids", _EXTRA_IDS))
    return [*pieces, *((f"<extra_id_{number}>", 0.0) for number in reversed(range(count)))], 2


_PIECES_FILES = ("sentencepiece.bpe.model",)

_CONVERTERS: Mapping[str, _Converter] = MappingProxyType(
    {
        **dict.fromkeys(sorted(BERT_CLASSES), _Converter(("vocab.txt",), _make_word_pieces)),
        "RobertaTokenizer": _Converter(("vocab.json",), _make_byte_pairs),
        "Qwen2Tokenizer": _Converter(("vocab.json",), _make_byte_pairs),
        "XLMRobertaTokenizer": _Converter(_PIECES_FILES, _make_pieces(_arrange_roberta)),
        "CamembertTokenizer": _Converter(
            _PIECES_FILES, _make_pieces(_arrange_camembert), mask_strips_left=True
        ),
        "AlbertTokenizer": _Converter(("spiece.model",), _make_pieces(_arrange_albert)),
        "DebertaV2Tokenizer": _Converter(("spm.model",), _make_pieces(_arrange_deberta)),
        "T5Tokenizer": _Converter(("spiece.model",), _make_pieces(_arrange_t5)),
    }
)
VOCABULARY_FILES = ("vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model", "spm.model")
