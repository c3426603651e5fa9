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
from vecmill.models.description import ModelDescription
from vecmill.models.directory import read_object
from vecmill.models.heads import MultiVector
from vecmill.models.location import ModelLocation
from vecmill.models.stages import Dense, DenseActivation, Normalize
from vecmill.values.task import Task

PUNCTUATION = tuple(string.punctuation)
CLASSIC_QUERY_TOKENS = 32
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
                prefix = values[key] or ""
                prefixes.append(prefix)
                prompts[prompt] = prefix + prompts.get(prompt, "").removeprefix(prefix)
        transformer = {
            key: values[key]
            for key in ("query_length", "document_length", "query_expansion")
            if key in values and (values[key] is not None or key == "query_expansion")
        }
        if "query_expansion" not in transformer and any(key in values for key in _PYLATE_KEYS):
            transformer["query_expansion"] = _translate_expansion(values)
            if transformer["query_expansion"] is not None:
                transformer.pop("query_length", None)
        skipped = values.get("skiplist_words")
        return cls(
            MappingProxyType(transformer),
            MappingProxyType(prompts),
            tuple(prefixes),
            None if skipped is None else tuple(map(str, skipped)),
        )


def _translate_expansion(values: Mapping[str, Any]) -> dict[str, Any] | None:
    if values.get("do_query_expansion") is False:
        return None
    attend = values.get("attend_to_expansion_tokens", values.get("attend_to_mask_tokens"))
    length = values.get("query_length") or CLASSIC_QUERY_TOKENS
    return {"strategy": "fixed", "attend": bool(attend), "length": length}


def describe_stanford_model(location: ModelLocation, folder: TransformerFolder) -> ModelDescription:
    """Describe a checkpoint of Stanford ColBERT. Raises `CorruptModel` or `UnsupportedModel`."""
    metadata = read_object(location.directory, "artifact.metadata") or {}
    prompts = {
        "query": (metadata.get("query_token_id") or "[unused0]") + " ",
        "document": (metadata.get("doc_token_id") or "[unused1]") + " ",
    }
    dim = int(metadata.get("dim") or _CLASSIC_DIM)
    base = folder.describe(location)
    file = find_module_weights(location.directory, "")
    projection = Dense(file, folder.encoder.hidden_size, dim, bias=False, activation=DenseActivation.IDENTITY)
    expansion = {
        "strategy": "fixed",
        "attend": bool(metadata.get("attend_to_mask_tokens")),
        "length": metadata.get("query_maxlen") or CLASSIC_QUERY_TOKENS,
    }
    description = replace(
        base,
        task=Task.MULTI_VECTOR,
        stages=(projection, Normalize()),
        dim=dim,
        prompts=MappingProxyType(prompts),
        multi_vector=MultiVector(
            skipped=PUNCTUATION if metadata.get("mask_punctuation", True) else (),
            prefixes=tuple(prompts.values()),
        ),
    )
    settings = {"document_length": metadata.get("doc_maxlen"), "query_expansion": expansion}
    return add_late_interaction(description, folder, settings)
