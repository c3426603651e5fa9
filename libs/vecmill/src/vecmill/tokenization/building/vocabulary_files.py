"""Builds tokenizers from vocabulary files older than tokenizer.json, as transformers' classes do.

    vocab.txt                                 one token per line: BERT
    vocab.json, merges.txt                    byte pairs: RoBERTa, Qwen
    sentencepiece.bpe.model and similar       pieces with scores: XLM-RoBERTa, CamemBERT, ALBERT, DeBERTa, T5

Each class arranges the pieces in its own order. `classes` applies its other rules.

A sentencepiece model is a protobuf message. This module lists the required fields with their numbers in
`sentencepiece_model.proto`. protobuf skips all other fields.

Source of the rules: transformers 5.23, `tokenization_*.py` of each model, `convert_slow_tokenizer.py` and
`tokenization_utils_base.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vecmill.errors import CorruptModel, UnsupportedModel, one_line
from vecmill.models.config_fields import MOST_TOKENS, read_size
from vecmill.models.directory import FileLimits, find_file, read_file, read_object
from vecmill.models.tokenizer_file import MAX_TOKENIZER_BYTES, TOKENIZER_CONFIG
from vecmill.tokenization.building.special_tokens import SpecialTokens
from vecmill.values.messages import show_name

_UNIGRAM = 1
_CONTROL, _USER_DEFINED = 3, 4

# Message -> field -> number, type, and whether it repeats.
_MESSAGES: Mapping[str, Mapping[str, tuple[int, str, bool]]] = {
    "Piece": {"piece": (1, "string", False), "score": (2, "float", False), "type": (3, "int32", False)},
    "Trainer": {"model_type": (3, "int32", False)},
    "Normalizer": {"precompiled_charsmap": (2, "bytes", False)},
    "Model": {
        "pieces": (1, "Piece", True),
        "trainer": (2, "Trainer", False),
        "normalizer": (3, "Normalizer", False),
    },
}


@dataclass(frozen=True, slots=True)
class SentencePieces:
    """The pieces of a vocabulary with their scores, in the order of their ids.

    `added` are control pieces and user-defined pieces. `charsmap` is the normalisation table. `is_unigram` is
    false for all other kinds of vocabulary.
    """

    pieces: tuple[tuple[str, float], ...]
    added: tuple[str, ...]
    charsmap: bytes | None = field(repr=False)
    is_unigram: bool


def read_sentencepieces(path: Path, max_bytes: int = MAX_TOKENIZER_BYTES) -> SentencePieces:
    """Read the file. Raises `CorruptModel` if it is not a sentencepiece model or larger than `max_bytes`."""
    message = _message_class()()
    content = read_file(path, max_bytes)
    try:
        message.ParseFromString(content)
        pieces = [(piece.piece, piece.score, piece.type) for piece in message.pieces]
    except Exception as error:  # not all versions of protobuf raise a narrower class
        raise CorruptModel(
            f"{path} cannot be read as a sentencepiece model: {one_line(error)}. Download the model again."
        ) from error
    if not pieces:
        raise CorruptModel(
            f"{path} is not a sentencepiece model: it has no pieces. Download the model again."
        )
    return SentencePieces(
        tuple((piece, score) for piece, score, _ in pieces),
        tuple(piece for piece, _, kind in pieces if kind in (_CONTROL, _USER_DEFINED)),
        message.normalizer.precompiled_charsmap or None,
        message.trainer.model_type in (0, _UNIGRAM),  # 0 is a missing field; the default is unigram
    )


def _message_class() -> Any:
    from google.protobuf import (  # type: ignore[import-untyped]
        descriptor_pb2,
        descriptor_pool,
        message_factory,
    )

    file = descriptor_pb2.FileDescriptorProto(name="sentencepieces.proto", package="vecmill", syntax="proto2")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for key, (number, kind, repeats) in fields.items():
            described = message.field.add(name=key, number=number)
            described.label = described.LABEL_REPEATED if repeats else described.LABEL_OPTIONAL
            if kind in _MESSAGES:
                described.type, described.type_name = described.TYPE_MESSAGE, f".vecmill.{kind}"
            else:
                described.type = getattr(described, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("vecmill.Model"))


MOST_EXTRA_IDS = 10_000
_EXTRA_IDS = 100  # the default of T5


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


def pieces_builder(
    arrange: Callable[[Pieces, SpecialTokens, Mapping[str, Any]], tuple[Pieces, int]],
) -> BuildTokenizer:
    """Return a builder of unigram tokenizers; `arrange` returns the pieces and the unknown token's id."""

    def make(file: VocabularyFile, special: SpecialTokens, config: Mapping[str, Any]) -> Any:
        import tokenizers

        path = file.path
        found = read_sentencepieces(path, file.limits.max_bytes)
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


def arrange_roberta(pieces: Pieces, special: SpecialTokens, config: Mapping[str, Any]) -> tuple[Pieces, int]:
    """Return the pieces of XLM-RoBERTa, and the id of the unknown token."""
    first = [(special[role], 0.0) for role in ("bos", "pad", "eos", "unk")]
    return [*first, *pieces[3:], (special["mask"], 0.0)], 3


def arrange_camembert(
    pieces: Pieces, special: SpecialTokens, config: Mapping[str, Any]
) -> tuple[Pieces, int]:
    """Return the pieces of CamemBERT, and the id of the unknown token."""
    first = [
        ("<s>NOTUSED", 0.0),
        (special["pad"], 0.0),
        ("</s>NOTUSED", 0.0),
        (special["unk"], 0.0),
        ("<unk>NOTUSED", -100.0),
    ]
    return [*first, *pieces[1:], (special["mask"], 0.0)], 3


def arrange_albert(pieces: Pieces, special: SpecialTokens, config: Mapping[str, Any]) -> tuple[Pieces, int]:
    """Return the pieces of ALBERT, and the id of the unknown token."""
    return pieces, 1


def arrange_deberta(pieces: Pieces, special: SpecialTokens, config: Mapping[str, Any]) -> tuple[Pieces, int]:
    """Return the pieces of DeBERTa, and the id of the unknown token."""
    return pieces, next((number for number, (piece, _) in enumerate(pieces) if piece == special["unk"]), 1)


def arrange_t5(pieces: Pieces, special: SpecialTokens, config: Mapping[str, Any]) -> tuple[Pieces, int]:
    """Return the pieces of T5 with its extra ids, and the id of the unknown token."""
    count = read_size(config, "extra_ids", _EXTRA_IDS, least=0, most=MOST_EXTRA_IDS, file=TOKENIZER_CONFIG)
    return [*pieces, *((f"<extra_id_{number}>", 0.0) for number in reversed(range(count)))], 2


VOCABULARY_FILES = ("vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model", "spm.model")
