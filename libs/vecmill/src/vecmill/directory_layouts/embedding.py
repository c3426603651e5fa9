"""Reads embedding models of sentence-transformers: an encoder, pooling and other stages."""

from dataclasses import replace

from vecmill.directory_layouts.modules import MODULES_FILE, Module, StageReader, name_kinds
from vecmill.directory_layouts.sentence_transformers_config import ModelSettings
from vecmill.directory_layouts.transformer_folder import TransformerFolder
from vecmill.errors import UnsupportedModel
from vecmill.models.description import ModelDescription
from vecmill.models.location import ModelLocation
from vecmill.models.stages import Pooling, Stage

# sentence-transformers overrides the settings of these models by name.
_WITHOUT_PROMPT = frozenset(f"hkunlp/instructor-{size}" for size in ("base", "large", "xl"))

# Settings of other kinds of models: multi-vector, and sparse with expansion.
_UNSUPPORTED_SETTINGS = ("query_length", "document_length", "query_expansion")


def describe_embedding_model(
    location: ModelLocation, modules: tuple[Module, ...], settings: ModelSettings
) -> ModelDescription:
    """Describe `SentenceTransformer` modules that begin with a Transformer."""
    directory = location.directory
    kinds = [module.kind for module in modules]
    if kinds[0] != "Transformer" or "Pooling" not in kinds:
        raise UnsupportedModel(
            f"{directory / MODULES_FILE} lists {name_kinds(modules)}; supported are Transformer and "
            "Pooling, in that order, and Dense, LayerNorm and Normalize after them."
        )
    folder = TransformerFolder.read(location, modules[0].folder)
    folder.expect_task("feature-extraction")
    for key in _UNSUPPORTED_SETTINGS:
        if folder.settings.get(key):
            raise UnsupportedModel(
                f"{folder.path('sentence_bert_config.json')}: {key} is not supported in an embedding model."
            )
    reader = StageReader(directory, folder.encoder.hidden_size)
    stages = reader.read(modules[1:])
    if location.name in _WITHOUT_PROMPT:
        stages = tuple(map(_exclude_prompt, stages))
    description = replace(folder.describe(location), stages=stages, dim=reader.width)
    return settings.truncate(settings.add_similarity(settings.add_prompts(description)))


def _exclude_prompt(stage: Stage) -> Stage:
    return replace(stage, include_prompt=False) if isinstance(stage, Pooling) else stage
