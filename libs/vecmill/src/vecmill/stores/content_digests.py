"""Digests of the contents of rows: whether a text must be embedded again, or only its columns written.

The digest of a row is `CONTENT-COLUMNS`, of a chunk `CONTENT-COLUMNS-CHUNKS` with the number of the chunks of
its text, so that a text whose chunks were not all written is known.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vecmill.bulk.embedder import EmbedParameters
from vecmill.bulk.picture_inputs import EmbedInput, PictureFile
from vecmill.requests import Picture
from vecmill.values.aliases import JsonValue

_CONTENT_DIGITS = 32
_COLUMNS_DIGITS = 16
_SCHEME = 1  # of the digest


@dataclass(frozen=True, slots=True)
class ContentDigest:
    """Digests of texts that are embedded with the same settings."""

    seed: bytes

    @classmethod
    def of(cls, parameters: EmbedParameters, identity: Mapping[str, JsonValue]) -> "ContentDigest":
        """Return the digest for settings of the embeddings and the identity of an embedder.

        Engine and precision are no part of it: they change vectors within their space alone.
        """
        chunking = None if parameters.chunking is None else parameters.chunking.describe()
        prompt = [parameters.prompt_name, identity.get("prompt_name"), parameters.purpose]
        return cls(json.dumps([_SCHEME, prompt, chunking], sort_keys=True).encode() + b"\0")

    def of_text(self, text: str) -> str:
        """Return the hexadecimal digest of a text and of the settings that change its vector."""
        return hashlib.sha256(self.seed + text.encode()).hexdigest()[:_CONTENT_DIGITS]

    def of_input(self, value: EmbedInput) -> str:
        """Return the digest of a text or of the content of a picture. Raises as `PictureFile.read` does."""
        if isinstance(value, str):
            return self.of_text(value)
        return hashlib.sha256(self.seed + _read_picture(value)).hexdigest()[:_CONTENT_DIGITS]


def id_of_input(value: EmbedInput) -> str:
    """Return the id of a text or a picture without an id column. Raises as `PictureFile.read` does."""
    content = value.encode() if isinstance(value, str) else _read_picture(value)
    return hashlib.sha256(content).hexdigest()[:_CONTENT_DIGITS]


def _read_picture(value: Picture | PictureFile) -> bytes:
    return (value.read() if isinstance(value, PictureFile) else value).data


def digest_columns(names: Sequence[str], values: Sequence[Any]) -> str:
    """Return the hexadecimal digest of the values that are copied beside a vector."""
    pairs = json.dumps(sorted(zip(names, values, strict=True)), ensure_ascii=False)
    return hashlib.sha256(pairs.encode()).hexdigest()[:_COLUMNS_DIGITS]


def storable(value: Any) -> str | int | float | bool | None:
    """Return a copied value as all stores have it: no NaN, integers of 64 bits, other values as JSON."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return value
    return json.dumps(value, ensure_ascii=False, default=str)
