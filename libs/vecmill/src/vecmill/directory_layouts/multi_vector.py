"""Reads multi-vector models, compared by MaxSim: those of sentence-transformers, PyLate and Stanford ColBERT.

    sentence-transformers    lengths and query expansion are settings of its Transformer
    PyLate                   config_sentence_transformers.json has the settings that newer layouts
                             store in their modules
    Stanford ColBERT         config.json names HF_ColBERT. The projection is `linear.weight` beside the
                             encoder's tensors; other settings are in artifact.metadata

Source of the rules: sentence-transformers 6.2, `multi_vector_encoder/model.py`,
`multi_vector_encoder/modules/multi_vector_mask.py`, `base/modules/transformer.py` (`preprocess`,
`_normalize_query_expansion`).
"""

import string
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from vecmill.directory_layouts.modules import MODULES_FILE, ModelSettings, Module, StageReader, name_kinds
from vecmill.directory_layouts.transformer_files import find_module_weights, join
from vecmill.directory_layouts.transformer_folder import TransformerFolder
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import (
    MOST_TOKENS,
    check_whole_number,
    read_flag,
    read_size,
    read_text,
    read_texts,
)
from vecmill.models.description import ModelDescription
from vecmill.models.directory import read_object, require_object
from vecmill.models.heads import MultiVector, QueryExpansion
from vecmill.models.location import ModelLocation
from vecmill.models.stages import Dense, DenseActivation, Normalize
from vecmill.values.task import Task

_EXPANSION_KEYS = frozenset({"strategy", "attend", "token", "length"})
# Every query is padded to the length, so it costs memory in every request.
MOST_EXPANSION = 2**16

_STRATEGIES = ("fixed", "min")


def add_late_interaction(
    description: ModelDescription,
    folder: TransformerFolder,
    settings: Mapping[str, Any],
    path: Path,
) -> ModelDescription:
    """Return `description` with the longest query and document, and the expansion of queries.

    `settings` are `query_length`, `document_length` and `query_expansion` of sentence-transformers'
    Transformer, read from `path`. Raises `CorruptModel` for invalid values, and `UnsupportedModel` for an
    expansion that the graph does not compute as the class does.
    """
    assert description.multi_vector is not None
    bound = folder.bound
    query = _read_length(path, "query_length", settings, description.max_tokens)
    document = _read_length(path, "document_length", settings, description.max_tokens)
    expansion = _read_expansion(path, folder, settings.get("query_expansion"))
    if expansion is not None and (expansion.fixed or settings.get("query_length") is not None):
        query = expansion.length if expansion.fixed else max(query, expansion.length)
    if bound is not None:
        query, document = min(query, bound), min(document, bound)
        if expansion is not None and expansion.length > bound:
            raise CorruptModel(
                f"{path}: query_expansion.length is above the encoder's limit of {bound} tokens, "
                "which max_position_embeddings sets."
            )
    finished = replace(
        description,
        max_tokens=max(description.max_tokens, query, document, 0 if expansion is None else expansion.length),
        multi_vector=replace(
            description.multi_vector, query_tokens=query, document_tokens=document, expansion=expansion
        ),
    )
    _refuse_masked_expansion(finished)
    return finished


def _refuse_masked_expansion(description: ModelDescription) -> None:
    # The graphs mask the last keys alone, and give 0 to tokens without any key.
    encoder, settings = description.encoder, description.multi_vector
    if description.most_unseen and settings and settings.expansion and settings.expansion.stands_first:
        raise UnsupportedModel(
            f"{description.directory}: query expansion without attend is not supported for a tokenizer that "
            "pads on the left."
        )
    if description.most_unseen and encoder.masks_every_layer:
        raise UnsupportedModel(
            f"{description.directory}: query expansion without attend is not supported for model_type "
            f"{description.architecture!r}."
        )
    if description.has_keyless_tokens and encoder.averages_keyless:
        raise UnsupportedModel(
            f"{description.directory}: query expansion without attend is not supported for model_type "
            f"{description.architecture!r} with sliding_window shorter than the expansion."
        )


def _read_length(path: Path, key: str, settings: Mapping[str, Any], default: int) -> int:
    return read_size(settings, key, default, most=MOST_TOKENS, file=path)


def _read_expansion(path: Path, folder: TransformerFolder, settings: Any) -> QueryExpansion | None:
    if settings is None:
        return None
    if not isinstance(settings, dict) or not set(settings) <= _EXPANSION_KEYS:
        raise CorruptModel(
            f"{path}: query_expansion has other keys than {', '.join(sorted(_EXPANSION_KEYS))}."
        )
    if settings.get("strategy") not in _STRATEGIES:
        raise CorruptModel(f"{path}: query_expansion.strategy must be {' or '.join(_STRATEGIES)}.")
    name = f"{path}: query_expansion"
    length = check_whole_number(settings.get("length"), f"{name}.length", most=MOST_EXPANSION)
    token = (
        read_text(settings, "token", file=name)
        or folder.special_token("mask_token")
        or folder.special_token("eos_token")
    )
    if token is None:
        raise CorruptModel(
            f"{path}: query_expansion names no token, and tokenizer_config.json has no mask_token to "
            "use instead."
        )
    fixed = settings["strategy"] == "fixed"
    return QueryExpansion(
        length,
        token,
        attend=read_flag(settings, "attend", default=False, file=name),
        fixed=fixed,
        # Without a fixed length the tokenizer does not pad a query that is alone.
        stands_first=fixed and folder.pads_left,
    )


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
            transformer,
            prompts,
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
    projection = Dense(file, folder.encoder.output_size, dim, bias=False, activation=DenseActivation.IDENTITY)
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
        prompts=prompts,
        multi_vector=MultiVector(
            skipped=PUNCTUATION if read_flag(metadata, "mask_punctuation", default=True, file=path) else (),
            prefixes=tuple(prompts.values()),
        ),
    )
    longest = read_size(metadata, "doc_maxlen", description.max_tokens, most=MOST_TOKENS, file=path)
    settings = {"document_length": longest, "query_expansion": expansion}
    return add_late_interaction(description, folder, settings, path)


_MASK = "MultiVectorMask"
_LATE_INTERACTION_KEYS = ("query_length", "document_length", "query_expansion")


def describe_multi_vector_model(
    location: ModelLocation, modules: tuple[Module, ...], settings: ModelSettings
) -> ModelDescription:
    """Describe `MultiVectorEncoder` modules, or PyLate's."""
    directory = location.directory
    if modules[0].kind != "Transformer":
        raise UnsupportedModel(
            f"{directory / MODULES_FILE} lists {name_kinds(modules)}; supported in a multi-vector model are "
            "Transformer, and Dense, LayerNorm, Normalize and MultiVectorMask after it."
        )
    if read_text(settings.values, "similarity_fn_name", file=settings.path) == "meanmaxsim":
        raise UnsupportedModel(
            f"{settings.path}: similarity_fn_name 'meanmaxsim' is not supported: token embeddings are "
            "compared by MaxSim alone."
        )
    folder = TransformerFolder.read(location, modules[0].folder)
    folder.expect_task("feature-extraction")
    pylate = PyLateSettings.read(settings)
    reader = StageReader.after(directory, folder.encoder, dense_input="token_embeddings")
    stages = reader.read([module for module in modules[1:] if module.kind != _MASK])
    if reader.pooled:
        raise UnsupportedModel(
            f"{directory / MODULES_FILE}: Pooling is not supported in a multi-vector model."
        )
    masks = [_read_mask(location, module) for module in modules if module.kind == _MASK]
    if settings.model_type == "ColBERT":
        # PyLate masks and normalises without modules.
        stages = (*stages, Normalize())
        masks.append(MultiVector(skipped=PUNCTUATION if pylate.skipped is None else pylate.skipped))
    if len(masks) > 1:
        raise UnsupportedModel(f"{directory / MODULES_FILE}: only one {_MASK} is supported.")
    mask = masks[0] if masks else MultiVector()
    description = replace(
        folder.describe(location),
        task=Task.MULTI_VECTOR,
        stages=stages,
        dim=reader.width,
        prompts=pylate.prompts,
        default_prompt_name=settings.default_prompt_name,
        multi_vector=replace(mask, prefixes=pylate.prefixes),
    )
    own = {key: folder.settings[key] for key in _LATE_INTERACTION_KEYS if key in folder.settings}
    values = {**pylate.transformer, **own}
    return add_late_interaction(description, folder, values, folder.settings_path)


def _read_mask(location: ModelLocation, module: Module) -> MultiVector:
    name = join(module.folder, "config.json")
    config = require_object(location.directory, name)
    if config.get("keep_only_token_ids"):
        raise UnsupportedModel(f"{location.directory / name}: keep_only_token_ids is not supported.")
    path = location.directory / name
    sides = config.get("skiplist_tasks")
    if isinstance(sides, str):
        sides = [sides]
    return MultiVector(
        skipped=read_texts(config, "skiplist_words", file=path),
        skipped_in=read_texts({"skiplist_tasks": sides}, "skiplist_tasks", file=path) or ("document",),
    )
