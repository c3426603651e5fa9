"""Reads multi-vector models in the older layouts of Stanford ColBERT and PyLate.

    Stanford ColBERT    config.json names HF_ColBERT. The projection is `linear.weight` beside the encoder's
                        tensors; other settings are in artifact.metadata.
    PyLate              config_sentence_transformers.json has the settings that newer layouts
                        store in their modules.

Source of the rules: sentence-transformers 6.2, `multi_vector_encoder/model.py`.
"""

import string
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Self

from vecmill.directory_layouts.late_interaction import add_late_interaction
from vecmill.directory_layouts.sentence_transformers_config import ModelSettings
from vecmill.directory_layouts.transformer_folder import TransformerFolder, find_module_weights
from vecmill.models.config_fields import MOST_TOKENS, read_flag, read_size, read_text, read_texts
from vecmill.models.description import ModelDescription
from vecmill.models.directory import read_object
from vecmill.models.heads import MultiVector
from vecmill.models.location import ModelLocation
from vecmill.models.stages import Dense, DenseActivation, Normalize
from vecmill.values.task import Task

PUNCTUATION = tuple(string.punctuation)
CLASSIC_QUERY_TOKENS = 32
METADATA_FILE = "artifact.metadata"
_CLASSIC_DIM = 128

_PYLATE_KEYS = (
    "query_length",
    "document_length",
    "query_expansion",
    "do_query_expansion",
    "attend_to_expansion_tokens",
    "attend_to_mask_tokens",
    "query_prefix",
    "document_prefix",
    "skiplist_words",
)


@dataclass(frozen=True, slots=True)
class PyLateSettings:
    """The settings that PyLate wrote: defaults of the encoder's settings, prompts and skipped words."""

    transformer: Mapping[str, Any]
    prompts: Mapping[str, str]
    prefixes: tuple[str, ...]
    skipped: tuple[str, ...] | None

    @classmethod
    def read(cls, settings: ModelSettings) -> Self:
        """Return the settings in the form of today's modules."""
        values = settings.values
        prompts, prefixes = dict(settings.prompts), []
        for key, prompt in (("query_prefix", "query"), ("document_prefix", "document")):
            if key in values:
                prefix = read_text(values, key, file=settings.path) or ""
                prefixes.append(prefix)
                prompts[prompt] = prefix + prompts.get(prompt, "").removeprefix(prefix)
        transformer = {
            key: values[key]
            for key in ("query_length", "document_length", "query_expansion")
            if key in values and (values[key] is not None or key == "query_expansion")
        }
        if "query_expansion" not in transformer and any(key in values for key in _PYLATE_KEYS):
            transformer["query_expansion"] = _translate_expansion(settings)
            if transformer["query_expansion"] is not None:
                transformer.pop("query_length", None)
        has_skipped = values.get("skiplist_words") is not None
        return cls(
            MappingProxyType(transformer),
            MappingProxyType(prompts),
            tuple(prefixes),
            read_texts(values, "skiplist_words", file=settings.path) if has_skipped else None,
        )


def _translate_expansion(settings: ModelSettings) -> dict[str, Any] | None:
    values, file = settings.values, settings.path
    if not read_flag(values, "do_query_expansion", default=True, file=file):
        return None
    older = read_flag(values, "attend_to_mask_tokens", default=False, file=file)
    attend = read_flag(values, "attend_to_expansion_tokens", default=older, file=file)
    length = read_size(values, "query_length", CLASSIC_QUERY_TOKENS, least=0, file=file)
    return {"strategy": "fixed", "attend": attend, "length": length or CLASSIC_QUERY_TOKENS}


def describe_stanford_model(location: ModelLocation, folder: TransformerFolder) -> ModelDescription:
    """Describe a checkpoint of Stanford ColBERT. Raises `CorruptModel` or `UnsupportedModel`."""
    metadata = read_object(location.directory, METADATA_FILE) or {}
    path = location.directory / METADATA_FILE
    prompts = {
        "query": (read_text(metadata, "query_token_id", file=path) or "[unused0]") + " ",
        "document": (read_text(metadata, "doc_token_id", file=path) or "[unused1]") + " ",
    }
    dim = read_size(metadata, "dim", _CLASSIC_DIM, least=0, file=path) or _CLASSIC_DIM
    base = folder.describe(location)
    file = find_module_weights(location.directory, "")
    projection = Dense(file, folder.encoder.hidden_size, dim, bias=False, activation=DenseActivation.IDENTITY)
    expansion = {
        "strategy": "fixed",
        "attend": read_flag(metadata, "attend_to_mask_tokens", default=False, file=path),
        "length": read_size(metadata, "query_maxlen", CLASSIC_QUERY_TOKENS, file=path),
    }
    description = replace(
        base,
        task=Task.MULTI_VECTOR,
        stages=(projection, Normalize()),
        dim=dim,
        prompts=MappingProxyType(prompts),
        multi_vector=MultiVector(
            skipped=PUNCTUATION if read_flag(metadata, "mask_punctuation", default=True, file=path) else (),
            prefixes=tuple(prompts.values()),
        ),
    )
    longest = read_size(metadata, "doc_maxlen", description.max_tokens, most=MOST_TOKENS, file=path)
    settings = {"document_length": longest, "query_expansion": expansion}
    return add_late_interaction(description, folder, settings, path)
