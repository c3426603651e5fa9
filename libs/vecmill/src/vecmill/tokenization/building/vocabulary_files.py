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

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vecmill.errors import CorruptModel, UnsupportedModel, one_line
from vecmill.models.config_fields import MOST_TOKENS, read_size
from vecmill.models.tokenizer_file import TOKENIZER_CONFIG
from vecmill.tokenization.building.charsmaps import check_charsmaps
from vecmill.tokenization.building.growth import check_normalizer
from vecmill.tokenization.building.merges import derive_merges
from vecmill.tokenization.building.sentencepieces import (
    BYTE_PAIRS,
    SPACE,
    UNIGRAM,
    SentencePieces,
    read_sentencepieces,
)
from vecmill.tokenization.building.special_tokens import FileTokens, SpecialTokens, Token
from vecmill.tokenization.building.tokenizer_files import MERGES_FILE, TokenizerFiles
from vecmill.values.messages import show

MOST_EXTRA_IDS = 10_000
_EXTRA_IDS = 100  # the default of T5


# What the library strips from the end of a line, the white space of Unicode. Python strips more.
WHITE_SPACE = (
    "\t\n\v\f\r \x85\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028"
    "\u2029\u202f\u205f\u3000"
)


@dataclass(frozen=True, slots=True)
class BuiltVocabulary:
    """A `tokenizers.Tokenizer` with a vocabulary alone, and the special tokens that the file itself lists.

    `pieces` is `None` if files of this kind list none.
    """

    tokenizer: Any
    pieces: list[Token] | None = None


# Files, special tokens, settings of the class -> the vocabulary.
BuildTokenizer = Callable[[TokenizerFiles, SpecialTokens, Mapping[str, Any]], BuiltVocabulary]


def build_word_pieces(
    files: TokenizerFiles, special: SpecialTokens, settings: Mapping[str, Any]
) -> BuiltVocabulary:
    """Build a tokenizer from a list of word pieces. Raises `CorruptModel`."""
    import tokenizers

    try:
        lines = read_lines(files, files.name)
    except ValueError as error:
        raise CorruptModel(
            f"{files.path} cannot be read as a vocabulary: {one_line(error)}. Download the model again."
        ) from error
    # The last of equal pieces counts, and an empty line is a piece.
    vocabulary = {line.rstrip(WHITE_SPACE): number for number, line in enumerate(lines)}
    model = tokenizers.models.WordPiece(vocabulary, unk_token=special["unk"])
    return BuiltVocabulary(tokenizers.Tokenizer(model))


def build_byte_pairs(
    files: TokenizerFiles, special: SpecialTokens, settings: Mapping[str, Any]
) -> BuiltVocabulary:
    """Build a tokenizer from numbered tokens and their merges. Raises `CorruptModel`."""
    import tokenizers

    vocabulary = _read_numbers(files)
    merges_path = files.folder / MERGES_FILE
    if MERGES_FILE not in files.contents:
        raise CorruptModel(f"{merges_path} is missing. Download the model again.")
    try:
        lines = read_lines(files, MERGES_FILE)
        merges: Any = [tuple(line.split(" ")) for line in lines if not line.startswith("#version")]
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
            f"{merges_path} does not fit {files.name}: {one_line(error)}. Download the model again."
        ) from error
    return BuiltVocabulary(tokenizers.Tokenizer(model))


def read_lines(files: TokenizerFiles, name: str) -> list[str]:
    """Return the lines of the file `name`, as the tokenizers library reads them: they end in LF or CRLF.

    Raises `CorruptModel`, or `ValueError` if the file is not UTF-8.
    """
    content, most = files.contents[name], files.limits.max_values
    if content.count(b"\n") > most:
        raise CorruptModel(f"{files.folder / name} has more than {most} lines, the limit for such a file.")
    lines = content.decode("utf-8").split("\n")
    last = lines.pop()
    return [*(line.removesuffix("\r") for line in lines), *([last] if last else [])]


def _read_numbers(files: TokenizerFiles) -> dict[str, int]:
    """Read a JSON object of token -> id. Raises `CorruptModel` if the file is broken."""
    document = files.read_object(files.name)
    wrong = next((token for token, number in document.items() if not _is_token_id(number)), None)
    if not document or wrong is not None:
        found = "" if wrong is None else f"; {show(wrong)} has {show(document[wrong])}"
        raise CorruptModel(
            f"{files.path} must number the tokens of a vocabulary{found}. Download the model again."
        )
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

    def make(files: TokenizerFiles, special: SpecialTokens, settings: Mapping[str, Any]) -> BuiltVocabulary:
        found = read_sentencepieces(files.path, files.content)
        if found.kind != UNIGRAM:
            raise UnsupportedModel(f"{files.path}: only unigram models of sentencepiece are supported.")
        pieces, unknown = arrange(list(found.pieces), special, settings)
        arranged = replace(
            found,
            pieces=tuple(pieces),
            unknown_id=found.unknown_id if unknown is None else unknown,
            byte_fallback=False,
        )
        return BuiltVocabulary(_make_unigram(files.path, arranged), _to_tokens(found))

    return make


def build_piece_pairs(
    files: TokenizerFiles, special: SpecialTokens, settings: Mapping[str, Any]
) -> BuiltVocabulary:
    """Build a tokenizer from the byte pairs of sentencepiece. Raises `CorruptModel` or `UnsupportedModel`."""
    found = read_sentencepieces(files.path, files.content)
    if found.kind != BYTE_PAIRS:
        raise UnsupportedModel(
            f"{files.path} is no byte-pair model of sentencepiece, which the model's tokenizer class reads. "
            "To use the file without the rules of the class, set tokenizer_class in tokenizer_config.json to "
            "'PreTrainedTokenizerFast'."
        )
    return BuiltVocabulary(_make_pairs(files.path, found), _to_tokens(found))


def build_plain(files: TokenizerFiles, said: FileTokens) -> tuple[BuiltVocabulary, SpecialTokens]:
    """Build the tokenizer of a sentencepiece model without the rules of a class.

    Added tokens with ids of the vocabulary take the places of its pieces. Returns the tokenizer with the
    special tokens of the training. Raises `CorruptModel` or `UnsupportedModel`.
    """
    from tokenizers import decoders, normalizers

    found = read_sentencepieces(files.path, files.content)
    if found.kind not in (UNIGRAM, BYTE_PAIRS):
        raise UnsupportedModel(
            f"{files.path}: only unigram and byte-pair models of sentencepiece are supported."
        )
    if found.kind == UNIGRAM:
        tokenizer = _make_unigram(files.path, found)
    else:
        tokenizer = _make_pairs(files.path, found, {number: str(token) for number, token in said.listed})
    table = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
    tokenizer.normalizer = normalizers.Sequence([*table, normalizers.Replace(" ", SPACE)])
    bytes_too = [decoders.ByteFallback(), decoders.Fuse()] if found.byte_fallback else []
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), *bytes_too])
    return BuiltVocabulary(tokenizer, _to_tokens(found)), found.roles


def _make_unigram(path: Path, found: SentencePieces) -> Any:
    from tokenizers import models

    def make() -> Any:
        return models.Unigram(
            vocab=list(found.pieces), unk_id=found.unknown_id, byte_fallback=found.byte_fallback
        )

    return _make_tokenizer(path, make, found)


def _make_pairs(path: Path, found: SentencePieces, renamed: Mapping[int, str] | None = None) -> Any:
    """Make a tokenizer of byte pairs. `renamed` are the new texts of pieces by their ids."""
    from tokenizers import models

    numbers = {piece: number for number, (piece, _) in enumerate(found.pieces)}
    merges = derive_merges(numbers, path)
    for number, text in (renamed or {}).items():
        if number < len(found.pieces) and text not in numbers:
            del numbers[found.pieces[number][0]]
            numbers[text] = number

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


def _to_tokens(found: SentencePieces) -> list[Token]:
    """Return the pieces to find in texts first."""
    from tokenizers import AddedToken

    return [AddedToken(piece, normalized=False, special=is_special) for piece, is_special in found.added]


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
    arranged = [*first, *pieces[1:], (special["mask"], 0.0)]
    return arranged, next(number for number, (piece, _) in enumerate(arranged) if piece == special["unk"])


def as_they_are(unknown: int | None) -> ArrangePieces:
    """Return the arrangement of the file, with this unknown token, or that of the file."""
    return lambda pieces, special, config: (pieces, unknown)


def arrange_deberta(pieces: Pieces, special: SpecialTokens, config: Mapping[str, Any]) -> Arranged:
    """Return the pieces of DeBERTa, and the id of the unknown token, that of the file if it has a score."""
    numbers = (number for number, piece in enumerate(pieces) if piece == (special["unk"], 0.0))
    return pieces, next(numbers, None)


def arrange_t5(pieces: Pieces, special: SpecialTokens, config: Mapping[str, Any]) -> Arranged:
    """Return the pieces of T5 with its extra ids, and the id of the unknown token."""
    extra = ((f"<extra_id_{number}>", 0.0) for number in reversed(range(read_extra_ids(config))))
    return [*pieces, *extra], 2


def read_extra_ids(settings: Mapping[str, Any]) -> int:
    """Return the number of extra ids of T5. Raises `CorruptModel` if it is out of range."""
    return read_size(settings, "extra_ids", _EXTRA_IDS, least=0, most=MOST_EXTRA_IDS, file=TOKENIZER_CONFIG)


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
