"""Reads sentencepiece models: `sentencepiece.bpe.model`, `spiece.model`, `tokenizer.model` and others.

A sentencepiece model is a protobuf message. This module lists the required fields with their numbers and
defaults in `sentencepiece_model.proto`. protobuf skips all other fields.

Source of the rules: sentencepiece 0.2 (`sentencepiece_model.proto`, `model_interface.cc`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vecmill.errors import CorruptModel, one_line
from vecmill.models.tokenizer_file import LONGEST_PIECE
from vecmill.values.messages import show

MOST_PIECES = 2**20
"""The most pieces of a vocabulary file; published ones have at most about 500,000."""

SPACE = "\u2581"
"""What stands for a space in pieces."""

# Of all pieces together; the library takes 350 bytes of memory for each byte of a unigram vocabulary.
_MOST_BYTES = 2**23

UNIGRAM, BYTE_PAIRS = 1, 2
_CONTROL, _USER_DEFINED = 3, 4
# A piece has a tag of this byte before it, and another before its text. Its length and score may have more.
_TAG, _TAGS_PER_PIECE = b"\n", 8

# Message -> field -> number, type, whether it repeats, and the default of a missing field.
_MESSAGES: Mapping[str, Mapping[str, tuple[int, str, bool, str | None]]] = {
    "Piece": {
        "piece": (1, "string", False, None),
        "score": (2, "float", False, None),
        "type": (3, "int32", False, "1"),
    },
    "Trainer": {
        "model_type": (3, "int32", False, "1"),
        "byte_fallback": (35, "bool", False, None),
        "unk_id": (40, "int32", False, "0"),
        "bos_id": (41, "int32", False, "1"),
        "eos_id": (42, "int32", False, "2"),
        "unk_piece": (45, "string", False, "<unk>"),
        "bos_piece": (46, "string", False, "<s>"),
        "eos_piece": (47, "string", False, "</s>"),
    },
    "Normalizer": {"precompiled_charsmap": (2, "bytes", False, None)},
    "Model": {
        "pieces": (1, "Piece", True, None),
        "trainer": (2, "Trainer", False, None),
        "normalizer": (3, "Normalizer", False, None),
    },
}


@dataclass(frozen=True, slots=True)
class SentencePieces:
    """The pieces of a vocabulary with their scores, in the order of their ids.

    `added` are the control pieces and the user-defined pieces, with true for a control piece. `charsmap` is
    the normalisation table. `kind` is `UNIGRAM`, `BYTE_PAIRS` or the number of another kind of vocabulary.
    `unknown_id`, and the tokens in `roles`, are those of the training.
    """

    pieces: tuple[tuple[str, float], ...]
    added: tuple[tuple[str, bool], ...]
    charsmap: bytes | None = field(repr=False)
    kind: int
    byte_fallback: bool
    unknown_id: int
    roles: Mapping[str, str]


def read_sentencepieces(path: Path, content: bytes) -> SentencePieces:
    """Read the content of the file `path`. Raises `CorruptModel` if it is not a sentencepiece model.

    sentencepiece itself accepts no empty pieces and no piece twice.
    """
    if content.count(_TAG) > _TAGS_PER_PIECE * MOST_PIECES:
        raise _too_many(path)
    try:
        message = _message_class()()
        message.ParseFromString(content)
        if len(message.pieces) > MOST_PIECES:
            raise _too_many(path)
        pieces = [(piece.piece, piece.score, piece.type) for piece in message.pieces]
        trainer = message.trainer
        roles = {
            role: getattr(trainer, f"{role}_piece")
            for role in ("bos", "eos", "unk")
            if getattr(trainer, f"{role}_id") >= 0
        }
    except CorruptModel:
        raise
    except Exception as error:  # not all versions of protobuf raise a narrower class
        raise CorruptModel(
            f"{path} cannot be read as a sentencepiece model: {one_line(error)}. Download the model again."
        ) from error
    _check_pieces(path, pieces)
    return SentencePieces(
        tuple((piece, score) for piece, score, _ in pieces),
        tuple((piece, kind == _CONTROL) for piece, _, kind in pieces if kind in (_CONTROL, _USER_DEFINED)),
        message.normalizer.precompiled_charsmap or None,
        trainer.model_type or UNIGRAM,
        trainer.byte_fallback,
        trainer.unk_id,
        roles,
    )


def _too_many(path: Path) -> CorruptModel:
    return CorruptModel(f"{path} has more than {MOST_PIECES} pieces, the limit for a vocabulary.")


def _check_pieces(path: Path, pieces: list[tuple[Any, float, int]]) -> None:
    """Raise `CorruptModel` if there are no pieces, or if a piece is empty, repeated or without a number."""
    if not pieces:
        raise CorruptModel(
            f"{path} is not a sentencepiece model: it has no pieces. Download the model again."
        )
    if sum(len(piece) for piece, _, _ in pieces) > _MOST_BYTES:
        raise CorruptModel(
            f"{path} has more than {_MOST_BYTES >> 20} MiB of pieces, the limit for a vocabulary."
        )
    seen: set[str] = set()
    for number, (piece, score, _) in enumerate(pieces):
        # protobuf gives the bytes of a piece that is not UTF-8.
        if not isinstance(piece, str) or not piece or piece in seen:
            raise CorruptModel(
                f"{path}: piece {number} is {show(piece)}, which is empty, no text or there twice. Download "
                "the model again."
            )
        if len(piece.encode()) > LONGEST_PIECE:
            raise CorruptModel(
                f"{path}: piece {number} has more than {LONGEST_PIECE} bytes, the limit for a token."
            )
        if not math.isfinite(score):
            raise CorruptModel(
                f"{path}: the score of piece {number} ({show(piece)}) is {score}. Download the model again."
            )
        seen.add(piece)


def _message_class() -> Any:
    from google.protobuf import (  # type: ignore[import-untyped]
        descriptor_pb2,
        descriptor_pool,
        message_factory,
    )

    file = descriptor_pb2.FileDescriptorProto(name="sentencepieces.proto", package="vecmill", syntax="proto2")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for key, (number, kind, repeats, default) in fields.items():
            described = message.field.add(name=key, number=number)
            described.label = described.LABEL_REPEATED if repeats else described.LABEL_OPTIONAL
            if default is not None:
                described.default_value = default
            if kind in _MESSAGES:
                described.type, described.type_name = described.TYPE_MESSAGE, f".vecmill.{kind}"
            else:
                described.type = getattr(described, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("vecmill.Model"))
