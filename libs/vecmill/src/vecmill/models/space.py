"""The identity of the space of a model's vectors: what it is made of, and its digests.

Vectors of equal `space` are comparable, those of queries with those of documents too. The space has a part
for each thing that decides the vectors: the values of the tensors, the tokenizer, the settings of the
architecture, pooling, further modules, normalisation, the table of prompts and the form of the output. How
the vectors are computed is no part of it: `exact` has that in addition, so vectors of equal `exact` are equal
to the error that is stated for the engine.

    s1-<32 hexadecimal digits>      a space
    e1-<32 hexadecimal digits>      an exact space

The number is that of the scheme. It is incremented when the same model gets another digest.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from vecmill.values.json_text import encode_json

SPACE_PREFIX, EXACT_PREFIX = "s1-", "e1-"
_DIGITS = 32


@dataclass(frozen=True, slots=True)
class SpacePart:
    """One part of a space: its name, its digest, and in words what was digested."""

    name: str
    digest: str
    about: str = ""

    @classmethod
    def of(cls, name: str, value: object, about: str = "") -> "SpacePart":
        """Make the part of a value that `to_canonical` takes."""
        return cls(name, digest_of(value), about)


@dataclass(frozen=True, slots=True)
class ModelSpace:
    """The parts of the space of a model, and its digest.

    `heads` are the parts of outputs that the model gives beside its own, such as the sparse embeddings of
    BGE-M3. They are in spaces of their own, and change none of the other outputs.
    """

    parts: tuple[SpacePart, ...]
    heads: tuple[SpacePart, ...]
    digest: str

    @classmethod
    def of(cls, parts: tuple[SpacePart, ...], heads: tuple[SpacePart, ...] = ()) -> "ModelSpace":
        """Make the space of these parts."""
        return cls(parts, heads, SPACE_PREFIX + digest_of({part.name: part.digest for part in parts}))

    def to_json(self) -> dict[str, Any]:
        """Return the space as values for JSON."""
        lists = {"parts": self.parts, "heads": self.heads}
        return {
            name: [[part.name, part.digest, part.about] for part in found] for name, found in lists.items()
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "ModelSpace":
        """Read what `to_json` returned. Raises `KeyError`, `TypeError` or `ValueError` for other values."""
        parts, heads = (
            tuple(SpacePart(*map(_check_text, part)) for part in document[name])
            for name in ("parts", "heads")
        )
        return cls.of(parts, heads)


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """The space of a served model, with the settings of its computation, which `exact` digests too."""

    model_space: ModelSpace
    computation: Mapping[str, str | int]
    space: str
    exact: str

    @classmethod
    def of(cls, model_space: ModelSpace, computation: Mapping[str, str | int]) -> "ModelIdentity":
        """Make the identity of a space that is computed in one way."""
        exact = EXACT_PREFIX + digest_of({"space": model_space.digest, **computation})
        return cls(model_space, computation, model_space.digest, exact)


def derive_digest(digest: str, kind: str) -> str:
    """Return the digest of the vectors of a kind, such as fewer dimensions, of a space with this digest."""
    prefix, _, digits = digest.partition("-")
    return f"{prefix}-{digest_of([digits, kind])}"


def digest_of(value: object) -> str:
    """Return the digest of a value that `to_canonical` takes: 32 hexadecimal digits."""
    text = encode_json(to_canonical(value), separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def to_canonical(value: object) -> Any:
    """Return a value of JSON for a setting; equal settings have equal values, whatever files hold them.

    Paths are left out, as the content of files is digested, not their place. So are fields of dataclasses
    that are off: a release may add a setting, which changes no model that does not use it.
    """
    if is_dataclass(value) and not isinstance(value, type):
        found = {field.name: getattr(value, field.name) for field in fields(value)}
        named = {name: to_canonical(one) for name, one in found.items() if not _is_off(one)}
        return {"class": type(value).__name__, **named}
    if isinstance(value, Mapping):
        return {str(key): to_canonical(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [to_canonical(one) for one in value]
    if isinstance(value, set | frozenset):
        return sorted(map(to_canonical, value), key=str)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return None
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(f"{type(value).__name__} is no setting of a model.")


def _is_off(value: object) -> bool:
    return value is None or value is False or isinstance(value, Path) or value in ((), {})


def _check_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a part of a space is text")
    return value
