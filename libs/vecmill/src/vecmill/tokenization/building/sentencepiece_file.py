"""Parses sentencepiece model files; `vocabulary_files` decides which kinds of them are supported.

The file is a protobuf message. This module lists the required fields with their numbers in
`sentencepiece_model.proto`. protobuf skips all other fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vecmill.errors import CorruptModel, one_line
from vecmill.models.directory import read_file
from vecmill.models.tokenizer_file import MAX_TOKENIZER_BYTES

_UNIGRAM = 1
_CONTROL, _USER_DEFINED = 3, 4

# Message -> field -> number, type, and whether it repeats.
_MESSAGES: Mapping[str, Mapping[str, tuple[int, str, bool]]] = MappingProxyType(
    {
        "Piece": {"piece": (1, "string", False), "score": (2, "float", False), "type": (3, "int32", False)},
        "Trainer": {"model_type": (3, "int32", False)},
        "Normalizer": {"precompiled_charsmap": (2, "bytes", False)},
        "Model": {
            "pieces": (1, "Piece", True),
            "trainer": (2, "Trainer", False),
            "normalizer": (3, "Normalizer", False),
        },
    }
)


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
