"""Embedding models of sentence-transformers: an encoder, pooling, and what comes before and after."""

from dataclasses import replace

from vecmill.errors import UnsupportedModel
from vecmill.models.description import ModelDescription
from vecmill.models.layouts.modules import MODULES_FILE, Module, StageReader, name_kinds
from vecmill.models.layouts.settings import ModelSettings
from vecmill.models.layouts.transformer_folder import TransformerFolder
from vecmill.models.location import ModelLocation
from vecmill.models.stages import Pooling, Stage

# The reference overrules the directories of these, by name.
_WITHOUT_PROMPT = frozenset(f"hkunlp/instructor-{size}" for size in ("base", "large", "xl"))

# Of multi-vector models, and of sparse ones with expansion; an embedding model with them is another kind.
_FOREIGN_SETTINGS = ("query_length", "document_length", "query_expansion")


def describe_embedding_model(
    location: ModelLocation, modules: tuple[Module, ...], settings: ModelSettings
) -> ModelDescription:
    """Describe `SentenceTransformer` modules that begin with a Transformer."""
    directory = location.directory
    kinds = [module.kind for module in modules]
    if kinds[0] != "Transformer" or "Pooling" not in kinds:
        raise UnsupportedModel(
            f"{directory / MODULES_FILE} lists {name_kinds(modules)}; supported are Transformer and "
            "Pooling, in "
            "that order, and Dense, LayerNorm and Normalize after them."
        )
    folder = TransformerFolder.read(location, modules[0].folder)
    folder.expect_task("feature-extraction")
    for key in _FOREIGN_SETTINGS:
        if folder.settings.get(key):
            raise UnsupportedModel(
                f"{folder.path('sentence_bert_config.json')}: {key} is not supported in an embedding model."
            )
    reader = StageReader(directory, folder.encoder.hidden_size)
    stages = reader.read(modules[1:])
    if location.name in _WITHOUT_PROMPT:
        stages = tuple(map(_leave_out_prompt, stages))
    description = replace(folder.describe(location), stages=stages, dim=reader.width)
    return settings.truncate(settings.add_similarity(settings.add_prompts(description)))


def _leave_out_prompt(stage: Stage) -> Stage:
    return replace(stage, include_prompt=False) if isinstance(stage, Pooling) else stage
