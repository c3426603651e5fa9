"""Builds tokenizers from vocabulary files older than tokenizer.json, as transformers' classes do.

    vocab.txt                 one token per line: BERT
    vocab.json, merges.txt    byte pairs: RoBERTa, GPT-2, Qwen, HerBERT
    sentencepiece.bpe.model   pieces with scores: XLM-RoBERTa, CamemBERT, MBart
    spiece.model, spm.model   the same: ALBERT, T5, XLNet, DeBERTa
    sentencepiece.model       the same: RemBERT
    tokenizer.model           byte pairs of sentencepiece: Llama, Gemma, Mistral; or pieces with scores

Each class arranges the pieces in its own order. `classes` applies its other rules. Byte pairs of
sentencepiece are merged in the order of their ids, as in transformers, and not in that of their scores.

Source of the rules: transformers 5.23, `tokenization_*.py` of each model, `convert_slow_tokenizer.py` and
`tokenization_utils_base.py`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vecmill.errors import CorruptModel, UnsupportedModel, one_line
from vecmill.models.config_fields import MOST_TOKENS, read_size
from vecmill.models.directory import FileLimits, find_file, read_file, read_object
from vecmill.models.tokenizer_file import TOKENIZER_CONFIG
from vecmill.tokenization.building.charsmaps import check_charsmaps
from vecmill.tokenization.building.growth import check_normalizer
from vecmill.tokenization.building.merges import derive_merges
from vecmill.tokenization.building.sentencepieces import (
    BYTE_PAIRS,
    UNIGRAM,
    SentencePieces,
    read_sentencepieces,
)
from vecmill.tokenization.building.special_tokens import SpecialTokens, lists_more_tokens
from vecmill.values.messages import show_name

MOST_EXTRA_IDS = 10_000
_EXTRA_IDS = 100  # the default of T5
_SPACE = "\u2581"  # of sentencepiece


@dataclass(frozen=True, slots=True)
class VocabularyFile:
    """The path of a vocabulary, and the limits of each file of the tokenizer."""

    path: Path
    limits: FileLimits


# A vocabulary, special tokens, tokenizer_config.json -> a `tokenizers.Tokenizer`.
BuildTokenizer = Callable[[VocabularyFile, SpecialTokens, Mapping[str, Any]], Any]


def build_word_pieces(file: VocabularyFile, special: SpecialTokens, config: Mapping[str, Any]) -> Any:
    """Build a tokenizer from a list of word pieces. Raises `CorruptModel`."""
    import tokenizers

    path = file.path
    try:
        lines = read_lines(path, file.limits)
    except ValueError as error:
        raise CorruptModel(
            f"{path} cannot be read as a vocabulary: {one_line(error)}. Download the model again."
        ) from error
    vocabulary = {token: number for number, token in enumerate(lines)}
    missing = sorted(
        f"{show_name(token)} ({role}_token)" for role, token in special.items() if token not in vocabulary
    )
    if missing:
        raise CorruptModel(f"{path} lacks {', '.join(missing)}. Download the model again.")
    return tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token=special["unk"]))


def build_byte_pairs(file: VocabularyFile, special: SpecialTokens, config: Mapping[str, Any]) -> Any:
    """Build a tokenizer from numbered tokens and their merges. Raises `CorruptModel`."""
    import tokenizers

    path = file.path
    vocabulary = _read_numbers(file)
    merges_file = find_file(path.parent, "merges.txt")
    if merges_file is None:
        raise CorruptModel(f"{path.parent / 'merges.txt'} is missing. Download the model again.")
    try:
        lines = read_lines(merges_file, file.limits)
        merges: Any = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
        model = tokenizers.models.BPE(
            vocab=vocabulary,
            merges=merges,
            continuing_subword_prefix="",
            end_of_word_suffix="",
            fuse_unk=False,
        )
    except CorruptModel:
        raise
    except Exception as error:  # the library raises no narrower class
        raise CorruptModel(
            f"{merges_file} does not fit {path.name}: {one_line(error)}. Download the model again."
        ) from error
    return tokenizers.Tokenizer(model)


def read_lines(path: Path, limits: FileLimits) -> list[str]:
    """Return the lines of a vocabulary. Raises `CorruptModel`, or `ValueError` if the file is not UTF-8."""
    content = read_file(path, limits.max_bytes)
    if content.count(b"\n") > limits.max_values:
        raise CorruptModel(f"{path} has more than {limits.max_values} lines, the limit for such a file.")
    return content.decode("utf-8").removesuffix("\n").split("\n")


def _read_numbers(file: VocabularyFile) -> dict[str, int]:
    """Read a JSON object of token -> id. Raises `CorruptModel` if the file is broken."""
    path = file.path
    document = read_object(path.parent, path.name, limits=file.limits) or {}
    if not document or not all(_is_token_id(number) for number in document.values()):
        raise CorruptModel(f"{path} must number the tokens of a vocabulary. Download the model again.")
    return document


def _is_token_id(value: object) -> bool:
    return type(value) is int and 0 <= value <= MOST_TOKENS


Pieces = list[tuple[str, float]]
# The pieces in the order of a class, and the id of the unknown token; `None` for that of the file.
Arranged = tuple[Pieces, int | None]
# Pieces, special tokens, tokenizer_config.json -> arranged pieces.
ArrangePieces = Callable[[Pieces, SpecialTokens, Mapping[str, Any]], Arranged]


def pieces_builder(arrange: ArrangePieces) -> BuildTokenizer:
    """Return a builder of unigram tokenizers; `arrange` returns the pieces and the unknown token's id."""

    def make(file: VocabularyFile, special: SpecialTokens, config: Mapping[str, Any]) -> Any:
        found = read_sentencepieces(file.path, file.limits.max_bytes)
        if found.kind != UNIGRAM:
            raise UnsupportedModel(f"{file.path}: only unigram models of sentencepiece are supported.")
        pieces, unknown = arrange(list(found.pieces), special, config)
        arranged = replace(
            found,
            pieces=tuple(pieces),
            unknown_id=found.unknown_id if unknown is None else unknown,
            byte_fallback=False,
        )
        tokenizer = _make_unigram(file.path, arranged)
        extra = [(piece, True) for piece, _ in pieces if piece.startswith("<extra_id_")]
        _add_pieces(tokenizer, [*found.added, *extra], config)
        return tokenizer

    return make


def build_piece_pairs(file: VocabularyFile, special: SpecialTokens, config: Mapping[str, Any]) -> Any:
    """Build a tokenizer from the byte pairs of sentencepiece. Raises `CorruptModel` or `UnsupportedModel`."""
    found = read_sentencepieces(file.path, file.limits.max_bytes)
    if found.kind != BYTE_PAIRS:
        raise UnsupportedModel(
            f"{file.path} is no byte-pair model of sentencepiece, which the model's tokenizer class reads. "
            "To use the file without the rules of the class, set tokenizer_class in tokenizer_config.json to "
            "'PreTrainedTokenizerFast'."
        )
    tokenizer = _make_pairs(file.path, found)
    _add_pieces(tokenizer, found.added, config)
    return tokenizer


def build_plain(file: VocabularyFile, config: Mapping[str, Any]) -> tuple[Any, SpecialTokens]:
    """Build the tokenizer of a sentencepiece model without the rules of a class.

    Returns it with the special tokens of the training. Raises `CorruptModel` or `UnsupportedModel`.
    """
    from tokenizers import decoders, normalizers

    found = read_sentencepieces(file.path, file.limits.max_bytes)
    if found.kind not in (UNIGRAM, BYTE_PAIRS):
        raise UnsupportedModel(
            f"{file.path}: only unigram and byte-pair models of sentencepiece are supported."
        )
    make = _make_unigram if found.kind == UNIGRAM else _make_pairs
    tokenizer = make(file.path, found)
    table = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
    tokenizer.normalizer = normalizers.Sequence([*table, normalizers.Replace(" ", _SPACE)])
    bytes_too = [decoders.ByteFallback(), decoders.Fuse()] if found.byte_fallback else []
    tokenizer.decoder = decoders.Sequence([decoders.Replace(_SPACE, " "), *bytes_too])
    _add_pieces(tokenizer, found.added, config)
    return tokenizer, found.roles


def _make_unigram(path: Path, found: SentencePieces) -> Any:
    from tokenizers import models

    def make() -> Any:
        return models.Unigram(
            vocab=list(found.pieces), unk_id=found.unknown_id, byte_fallback=found.byte_fallback
        )

    return _make_tokenizer(path, make, found)


def _make_pairs(path: Path, found: SentencePieces) -> Any:
    from tokenizers import models

    numbers = {piece: number for number, (piece, _) in enumerate(found.pieces)}
    merges = derive_merges(numbers, path)

    def make() -> Any:
        return models.BPE(
            vocab=numbers,
            merges=merges,
            unk_token=found.roles.get("unk"),
            fuse_unk=True,
            byte_fallback=found.byte_fallback,
        )

    return _make_tokenizer(path, make, found)


def _make_tokenizer(path: Path, make: Callable[[], Any], found: SentencePieces) -> Any:
    """Make a tokenizer with the normalisation table of `found`.

    Raises `CorruptModel`, or `UnsupportedModel` if the table makes too much of a text.
    """
    import tokenizers

    try:
        tokenizer = tokenizers.Tokenizer(make())
        if found.charsmap is not None:
            tokenizer.normalizer = tokenizers.normalizers.Precompiled(found.charsmap)
            # The library normalises tokens that are added.
            check_charsmaps(tokenizer.normalizer, path)
            check_normalizer(tokenizer.normalizer, path)
    except (CorruptModel, UnsupportedModel):
        raise
    except Exception as error:  # the library raises no narrower class
        raise CorruptModel(
            f"{path} makes no tokenizer: {one_line(error)}. Download the model again."
        ) from error
    return tokenizer


def _add_pieces(tokenizer: Any, added: Iterable[tuple[str, bool]], config: Mapping[str, Any]) -> None:
    """Add the pieces to find in texts first, with true for special ones, unless `config` lists others."""
    from tokenizers import AddedToken

    if not lists_more_tokens(config):
        tokenizer.add_tokens(
            [AddedToken(piece, normalized=False, special=is_special) for piece, is_special in added]
        )


def arrange_roberta(pieces: Pieces, special: SpecialTokens, config: Mapping[str, Any]) -> Arranged:
    """Return the pieces of XLM-RoBERTa, and the id of the unknown token."""
    first = [(special[role], 0.0) for role in ("bos", "pad", "eos", "unk")]
    return [*first, *pieces[3:], (special["mask"], 0.0)], 3


def arrange_camembert(pieces: Pieces, special: SpecialTokens, config: Mapping[str, Any]) -> Arranged:
    """Return the pieces of CamemBERT, and the id of the unknown token."""
    first = [
        ("<s>NOTUSED", 0.0),
        (special["pad"], 0.0),
        ("</s>NOTUSED", 0.0),
        (special["unk"], 0.0),
        ("<unk>NOTUSED", -100.0),
    ]
    return [*first, *pieces[1:], (special["mask"], 0.0)], 3


def arrange_xlnet(pieces: Pieces, special: SpecialTokens, config: Mapping[str, Any]) -> Arranged:
    """Return the pieces of XLNet, which has the unknown token of the file."""
    return pieces, None


def arrange_albert(pieces: Pieces, special: SpecialTokens, config: Mapping[str, Any]) -> Arranged:
    """Return the pieces of ALBERT, and the id of the unknown token."""
    return pieces, 1


def arrange_deberta(pieces: Pieces, special: SpecialTokens, config: Mapping[str, Any]) -> Arranged:
    """Return the pieces of DeBERTa, and the id of the unknown token."""
    return pieces, next((number for number, (piece, _) in enumerate(pieces) if piece == special["unk"]), 1)


def arrange_rembert(pieces: Pieces, special: SpecialTokens, config: Mapping[str, Any]) -> Arranged:
    """Return the pieces of RemBERT, and the id of the unknown token."""
    return pieces, 2


def arrange_t5(pieces: Pieces, special: SpecialTokens, config: Mapping[str, Any]) -> Arranged:
    """Return the pieces of T5 with its extra ids, and the id of the unknown token."""
    count = read_size(config, "extra_ids", _EXTRA_IDS, least=0, most=MOST_EXTRA_IDS, file=TOKENIZER_CONFIG)
    return [*pieces, *((f"<extra_id_{number}>", 0.0) for number in reversed(range(count)))], 2


def arrange_languages(start: str, codes: tuple[str, ...]) -> ArrangePieces:
    """Return the arrangement of MBart, which has the codes of languages before the mask token.

    `start` is the role of the first token.
    """

    def arrange(pieces: Pieces, special: SpecialTokens, config: Mapping[str, Any]) -> Arranged:
        first = [(special[role], 0.0) for role in (start, "pad", "eos", "unk")]
        last = [(token, 0.0) for token in (*codes, special["mask"])]
        return [*first, *pieces[3:], *last], 3

    return arrange


VOCABULARY_FILES = (
    "tokenizer.model",
    "tiktoken.model",
    "qwen.tiktoken",
    "vocab.txt",
    "vocab.json",
    "sentencepiece.bpe.model",
    "sentencepiece.model",
    "spiece.model",
    "spm.model",
)
