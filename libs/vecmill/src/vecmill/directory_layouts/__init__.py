"""Detects the layout of a model directory and reads its description, without reading the weights.

    modules.json                        sentence-transformers: an encoder and the modules after it
      the first module is a Router    `asymmetric`, around the layouts below for queries and for documents
      model_type in config_sentence_transformers.json
        SentenceTransformer             `embedding`, or `static` if the encoder is an embedding table
        SparseEncoder                   `sparse`
        MultiVectorEncoder, ColBERT     `multi_vector`
        CrossEncoder                    `cross_encoder`
    config.json alone                   `plain`: a transformers model, by its class
    adapter_config.json alone           a LoRA adapter, served as its base (`adapter_base`)

Any model that embeds texts may have an encoder of pictures in another directory (`picture_encoders`).

The reference implementation of each layout is sentence-transformers 6.2 or a transformers 5 pipeline.
"""

from dataclasses import replace

from vecmill.directory_layouts.adapter_base import (
    check_adapter,
    find_transformer_folder,
    holds_whole_model,
    locate_base,
)
from vecmill.directory_layouts.asymmetric import ROUTERS, describe_asymmetric_model
from vecmill.directory_layouts.cross_encoder import describe_cross_encoder
from vecmill.directory_layouts.embedding import (
    describe_embedding_model,
    describe_sparse_model,
    describe_static_model,
)
from vecmill.directory_layouts.modules import ModelSettings, Module, read_modules
from vecmill.directory_layouts.multi_vector import describe_multi_vector_model
from vecmill.directory_layouts.picture_encoders import add_pictures
from vecmill.directory_layouts.plain import describe_plain_model
from vecmill.errors import SetupError, UnsupportedModel
from vecmill.models.adapters import Adapter
from vecmill.models.description import ModelDescription
from vecmill.models.directory import load_failures
from vecmill.models.location import ModelLocation
from vecmill.values.messages import show
from vecmill.values.task import Task


def describe_model(location: ModelLocation, task: Task | None = None) -> ModelDescription:
    """Read the description of the model at `location`; `task` overrides the task of the directory.

    Raises `CorruptModel` if a file is broken or missing, `UnsupportedModel` if the model has an unsupported
    setting or cannot do `task`. Both name the file. Raises `LoadFailed` for anything unforeseen.
    """
    with load_failures(location.directory):
        description = _describe(location, task)
        check_adapter(description)
        description = _with_base(description)
    if location.pictures is None:
        return description
    with load_failures(location.pictures.directory):
        return add_pictures(description, location.pictures)


def _describe(location: ModelLocation, task: Task | None) -> ModelDescription:
    modules = read_modules(location.directory)
    if modules is None:
        adapter = Adapter.find(location.directory)
        if adapter is None or holds_whole_model(location.directory):
            return describe_plain_model(location, task)
        return _describe_adapted(location, adapter, task)
    description = _describe_modules(location, modules)
    if task not in (None, description.task):
        raise UnsupportedModel(
            f"{location.directory}: the task {task} was requested, but by modules.json the model's task is "
            f"{description.task}."
        )
    return description


def _describe_adapted(location: ModelLocation, adapter: Adapter, task: Task | None) -> ModelDescription:
    """Describe the base with the adapter: what the adapter's directory does not have is that of the base.

    An adapter with a head is for the transformers model alone, without the modules after it.
    """
    base = replace(locate_base(adapter), adapter=adapter)
    if adapter.class_end is None:
        description = _describe(base, task)
    else:
        folder = find_transformer_folder(base.directory)
        description = describe_plain_model(replace(base, directory=base.directory / folder), task)
    return replace(description, name=location.name, directory=location.directory, adapter=adapter)


def _with_base(description: ModelDescription) -> ModelDescription:
    """Return the description of a model with an adapter with that of its base, others as they are."""
    adapter = description.adapter
    if adapter is None:
        return description
    alone = replace(description, adapter=None)
    if adapter.config_file.parent == description.weights_files[0].parent:
        return replace(description, base=alone)
    try:
        return replace(description, base=_describe(locate_base(adapter), None))
    except SetupError:  # the base alone may be no model, such as one without a tokenizer
        return replace(description, base=alone)


def _describe_modules(location: ModelLocation, modules: tuple[Module, ...]) -> ModelDescription:
    settings = ModelSettings.read(location.directory)
    kinds = [module.kind for module in modules]
    if kinds and kinds[0] in ROUTERS and settings.model_type in ("SentenceTransformer", "SparseEncoder"):
        return describe_asymmetric_model(location, modules, settings)
    match settings.model_type:
        case "CrossEncoder":
            return describe_cross_encoder(location, modules, settings)
        case "MultiVectorEncoder" | "ColBERT":
            return describe_multi_vector_model(location, modules, settings)
        case "SparseEncoder":
            return describe_sparse_model(location, modules, settings)
        case "SentenceTransformer" if "SpladePooling" in kinds:
            return describe_sparse_model(location, modules, settings)
        case "SentenceTransformer" if kinds[:1] == ["StaticEmbedding"]:
            return describe_static_model(location, modules, settings)
        case "SentenceTransformer":
            return describe_embedding_model(location, modules, settings)
    raise UnsupportedModel(
        f"{location.directory / settings.FILE}: model_type {show(settings.model_type)} is not supported."
    )
