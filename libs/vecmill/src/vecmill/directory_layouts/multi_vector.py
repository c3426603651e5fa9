"""Reads multi-vector models of sentence-transformers and PyLate, compared by MaxSim.

Source of the rules: sentence-transformers 6.2, `multi_vector_encoder/model.py` and
`multi_vector_encoder/modules/multi_vector_mask.py`.
"""

from dataclasses import replace

from vecmill.directory_layouts.colbert import PUNCTUATION, PyLateSettings
from vecmill.directory_layouts.late_interaction import add_late_interaction
from vecmill.directory_layouts.modules import MODULES_FILE, Module, StageReader, name_kinds
from vecmill.directory_layouts.sentence_transformers_config import ModelSettings
from vecmill.directory_layouts.transformer_folder import TransformerFolder, join
from vecmill.errors import UnsupportedModel
from vecmill.models.config_fields import read_text, read_texts
from vecmill.models.description import ModelDescription
from vecmill.models.directory import require_object
from vecmill.models.heads import MultiVector
from vecmill.models.location import ModelLocation
from vecmill.models.stages import Normalize
from vecmill.values.task import Task

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
    reader = StageReader(directory, folder.encoder.hidden_size, dense_input="token_embeddings")
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
    finished = add_late_interaction(description, folder, values, folder.settings_path)
    _refuse_masked_expansion(finished)
    return finished


def _refuse_masked_expansion(description: ModelDescription) -> None:
    # The graph here masks keys alone.
    settings = description.multi_vector
    expansion = None if settings is None else settings.expansion
    if description.encoder.masks_every_layer and expansion is not None and not expansion.attend:
        raise UnsupportedModel(
            f"{description.directory}: query expansion without attend is not supported for model_type "
            f"{description.architecture!r}."
        )


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
