"""Reads `config_sentence_transformers.json`: the kind of model, its prompts and similarity measure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

from vecmill.errors import CorruptModel
from vecmill.models.config_fields import check_whole_number, read_mapping, read_text
from vecmill.models.description import ModelDescription
from vecmill.models.directory import read_object
from vecmill.models.heads import Similarity
from vecmill.models.stages import Truncate
from vecmill.values.messages import show

# Prompts that all models but rerankers have in sentence-transformers, by default empty.
_DEFAULT_PROMPTS = ("query", "document")


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The settings of the file, empty if it is missing. `values` is its whole content."""

    FILE: ClassVar[str] = "config_sentence_transformers.json"

    path: Path
    values: Mapping[str, Any]
    prompts: Mapping[str, str]
    default_prompt_name: str | None

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Read the file. Raises `CorruptModel` for invalid prompts."""
        values = read_object(directory, cls.FILE) or {}
        path = directory / cls.FILE
        prompts = _read_prompts(path, values)
        default = _read_default(path, values, prompts)
        return cls(path, MappingProxyType(values), MappingProxyType(prompts), default)

    @property
    def model_type(self) -> str:
        """The class of sentence-transformers, by default `SentenceTransformer`."""
        return read_text(self.values, "model_type", file=self.path) or "SentenceTransformer"

    def add_prompts(self, description: ModelDescription) -> ModelDescription:
        """Return `description` with the prompts."""
        return replace(description, prompts=self.prompts, default_prompt_name=self.default_prompt_name)

    def add_similarity(self, description: ModelDescription) -> ModelDescription:
        """Return `description` with the similarity measure of its embeddings, by default the cosine."""
        name = read_text(self.values, "similarity_fn_name", file=self.path)
        # Other names belong to other kinds of models. sentence-transformers ignores them too.
        similarity = Similarity(name) if name is not None and name in tuple(Similarity) else Similarity.COSINE
        return replace(description, similarity=similarity)

    def truncate(self, description: ModelDescription) -> ModelDescription:
        """Return `description` truncated to `truncate_dim` dimensions, if set. Raises `CorruptModel`."""
        value = self.values.get("truncate_dim")
        dim = description.dim if value is None else check_whole_number(value, f"{self.path}: truncate_dim")
        if dim >= description.dim:
            return description
        return replace(description, stages=(*description.stages, Truncate(dim)), dim=dim)


def _read_prompts(path: Path, values: Mapping[str, Any]) -> dict[str, str]:
    prompts = read_mapping(values, "prompts", file=path)
    if not all(isinstance(text, str | None) for text in prompts.values()):
        raise CorruptModel(f"{path}: prompts must be an object of strings.")
    return {key: read_text(prompts, key, "", file=f"{path}: prompts") or "" for key in prompts}


def _read_default(path: Path, values: Mapping[str, Any], prompts: Mapping[str, str]) -> str | None:
    name = values.get("default_prompt_name")
    if name is None or (isinstance(name, str) and name in prompts):
        return name
    if name in _DEFAULT_PROMPTS and values.get("model_type") != "CrossEncoder":
        return None  # an empty prompt
    raise CorruptModel(f"{path}: default_prompt_name {show(name)} is not one of its prompts.")
