"""Reads sparse models of sentence-transformers: a masked language model with SPLADE pooling."""

from dataclasses import replace

from vecmill.directory_layouts.modules import MODULES_FILE, Module, name_kinds
from vecmill.directory_layouts.sentence_transformers_config import ModelSettings
from vecmill.directory_layouts.transformer_folder import TransformerFolder, join
from vecmill.errors import UnsupportedModel
from vecmill.models.config_fields import read_choice
from vecmill.models.description import ModelDescription
from vecmill.models.directory import require_object
from vecmill.models.heads import Head, HeadKind
from vecmill.models.location import ModelLocation
from vecmill.models.stages import Splade
from vecmill.values.messages import show
from vecmill.values.task import Task

_STRATEGIES = ("max", "sum")
_ACTIVATIONS = ("relu", "log1p_relu")


def describe_sparse_model(
    location: ModelLocation, modules: tuple[Module, ...], settings: ModelSettings
) -> ModelDescription:
    """Describe `SparseEncoder` modules."""
    directory = location.directory
    kinds = [module.kind for module in modules]
    # MLMTransformer is the name of Transformer before release 5.4.
    if kinds not in (["Transformer", "SpladePooling"], ["MLMTransformer", "SpladePooling"]):
        raise UnsupportedModel(
            f"{directory / MODULES_FILE} lists {name_kinds(modules)}; supported in a sparse model are "
            "Transformer and SpladePooling."
        )
    if settings.values.get("max_active_dims") is not None:
        raise UnsupportedModel(f"{settings.path}: max_active_dims is not supported.")
    similarity = settings.values.get("similarity_fn_name")
    if similarity not in (None, "dot"):
        raise UnsupportedModel(
            f"{settings.path}: similarity_fn_name {show(similarity)} is not supported in a sparse model: "
            "sparse embeddings are compared by dot product alone."
        )
    folder = TransformerFolder.read(location, modules[0].folder)
    if kinds[0] == "Transformer":
        folder.expect_task("fill-mask")
    splade = _read_splade(location, modules[1])
    return settings.add_prompts(make_sparse(folder.describe(location), splade))


def make_sparse(description: ModelDescription, splade: Splade) -> ModelDescription:
    """Return `description` with the head and the stage of a sparse model."""
    return replace(
        description,
        task=Task.SPARSE,
        head=Head(HeadKind.VOCABULARY),
        stages=(splade,),
        dim=description.vocab_size,
    )


def _read_splade(location: ModelLocation, module: Module) -> Splade:
    name = join(module.folder, "config.json")
    config = require_object(location.directory, name)
    values = []
    for key, known in (("pooling_strategy", _STRATEGIES), ("activation_function", _ACTIVATIONS)):
        values.append(read_choice(config, key, known, known[0], file=location.directory / name))
    return Splade(add_up=values[0] == "sum", twice=values[1] == "log1p_relu")
