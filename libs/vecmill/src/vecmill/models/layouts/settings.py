"""`config_sentence_transformers.json`: what kind of model a directory holds, and its prompts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

from vecmill.errors import CorruptModel
from vecmill.models.description import ModelDescription
from vecmill.models.directory import read_object
from vecmill.models.heads import Similarity
from vecmill.models.stages import Truncate

# Prompts of these names models have in the reference, empty where none is written. Rerankers have not.
_ALWAYS_THERE = ("query", "document")


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """What the file says; an absent one says nothing. `values` is all of it."""

    FILE: ClassVar[str] = "config_sentence_transformers.json"

    path: Path
    values: Mapping[str, Any]
    prompts: Mapping[str, str]
    default_prompt_name: str | None

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Read the file. Raises `CorruptModel` for prompts that are none."""
        values = read_object(directory, cls.FILE) or {}
        path = directory / cls.FILE
        prompts = _read_prompts(path, values)
        default = _read_default(path, values, prompts)
        return cls(path, MappingProxyType(values), MappingProxyType(prompts), default)

    @property
    def model_type(self) -> str:
        """The reference's class, without which it is the oldest one."""
        return str(self.values.get("model_type") or "SentenceTransformer")

    def add_prompts(self, description: ModelDescription) -> ModelDescription:
        """`description` with the prompts."""
        return replace(description, prompts=self.prompts, default_prompt_name=self.default_prompt_name)

    def add_similarity(self, description: ModelDescription) -> ModelDescription:
        """`description` with the comparison that its rows are for: the cosine, unless another is named."""
        written = self.values.get("similarity_fn_name")
        # Names that are none of these belong to other kinds of models; the reference passes over them too.
        known = Similarity(written) if written in tuple(Similarity) else Similarity.COSINE
        return replace(description, similarity=known)

    def truncate(self, description: ModelDescription) -> ModelDescription:
        """`description` with a last stage that cuts rows, where one is asked for. Raises `CorruptModel`."""
        asked = self.values.get("truncate_dim")
        if asked is None:
            return description
        if isinstance(asked, bool) or not isinstance(asked, int) or asked < 1:
            raise CorruptModel(f"{self.path}: truncate_dim must be a whole number of at least 1.")
        if asked >= description.dim:
            return description
        return replace(description, stages=(*description.stages, Truncate(asked)), dim=asked)


def _read_prompts(path: Path, values: Mapping[str, Any]) -> dict[str, str]:
    written = values.get("prompts") or {}
    if not isinstance(written, dict) or not all(isinstance(text, str | None) for text in written.values()):
        raise CorruptModel(f"{path}: prompts must be an object of strings.")
    return {key: text or "" for key, text in written.items()}


def _read_default(path: Path, values: Mapping[str, Any], prompts: Mapping[str, str]) -> str | None:
    written = values.get("default_prompt_name")
    if written is None or (isinstance(written, str) and written in prompts):
        return written
    if written in _ALWAYS_THERE and values.get("model_type") != "CrossEncoder":
        return None  # an empty prompt is none
    raise CorruptModel(f"{path}: default_prompt_name {written!r} is not one of its prompts.")
