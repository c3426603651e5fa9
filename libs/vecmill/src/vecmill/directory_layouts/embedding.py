"""Reads models of sentence-transformers that give one embedding for each text: dense, sparse and static.

    dense     an encoder, perhaps the weighted mean of its layers, pooling and other stages; with the heads
              of BGE-M3, `sparse_linear.pt` and `colbert_linear.pt`, sparse and multi-vector embeddings too
    sparse    a masked language model with SPLADE pooling, or an encoder with pooling, other stages and a
              sparse autoencoder (CSR)
    static    (model2vec and similar) the mean of token embeddings
        tokenizer.json       the tokenizer, used without special tokens
        model.safetensors    `embedding.weight` of sentence-transformers, or `embeddings` of model2vec,
                             optionally with `mapping` (token -> row) and `weights` (of tokens)

Source of the rules: sentence-transformers 6.2, `sentence_transformer/modules/static_embedding.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vecmill.architectures.static import StaticConfig
from vecmill.directory_layouts.modules import MODULES_FILE, ModelSettings, Module, StageReader, name_kinds
from vecmill.directory_layouts.transformer_files import find_module_weights, find_weights, join
from vecmill.directory_layouts.transformer_folder import TransformerFolder
from vecmill.directory_layouts.two_towers import describe_two_towers, has_pictures, truncate_pictures
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import (
    MOST_TOKENS,
    check_whole_number,
    read_choice,
    read_flag,
    read_mapping,
    read_size,
)
from vecmill.models.description import ModelDescription
from vecmill.models.directory import read_object, require_object
from vecmill.models.heads import Head, HeadKind, TokenHeads, find_head_files
from vecmill.models.location import ModelLocation
from vecmill.models.stages import Pooling, PoolingMode, SparseAutoEncoder, Splade, Stage
from vecmill.models.tokenizer_file import token_numbers, tokenizer_limits
from vecmill.models.weights import Weights
from vecmill.values.messages import show
from vecmill.values.task import Task

# sentence-transformers overrides the settings of these models by name.
_WITHOUT_PROMPT = frozenset(f"hkunlp/instructor-{size}" for size in ("base", "large", "xl"))

# CLIPModel is the name of Transformer for CLIP before release 5.4.
_ENCODERS = ("Transformer", "CLIPModel")

# Settings of other kinds of models: multi-vector, and sparse with expansion.
_UNSUPPORTED_SETTINGS = ("query_length", "document_length", "query_expansion")


def describe_embedding_model(
    location: ModelLocation, modules: tuple[Module, ...], settings: ModelSettings
) -> ModelDescription:
    """Describe `SentenceTransformer` modules that begin with a Transformer."""
    directory = location.directory
    kinds = [module.kind for module in modules]
    folder = _read_encoder_folder(location, modules[0]) if kinds[0] in _ENCODERS else None
    if folder is not None and has_pictures(folder):
        described = describe_two_towers(location, folder, modules[1:])
        return truncate_pictures(settings.truncate(settings.add_similarity(settings.add_prompts(described))))
    if folder is not None and kinds == ["Transformer"] and folder.encoder.own_stages:
        description = replace(folder.describe(location), stages=folder.encoder.own_stages)
        return settings.truncate(settings.add_similarity(settings.add_prompts(description)))
    if folder is None or kinds[0] != "Transformer" or "Pooling" not in kinds:
        raise UnsupportedModel(
            f"{directory / MODULES_FILE} lists {name_kinds(modules)}; supported are Transformer and "
            "Pooling, in that order, and Dense, LayerNorm and Normalize after them."
        )
    reader = StageReader.after(directory, folder.encoder)
    stages = _read_stages(reader, folder, modules[1:])
    if location.name in _WITHOUT_PROMPT:
        stages = tuple(map(_exclude_prompt, stages))
    description = replace(
        folder.describe(location), stages=stages, dim=reader.width, token_heads=_find_token_heads(folder)
    )
    return settings.truncate(settings.add_similarity(settings.add_prompts(description)))


def _read_encoder_folder(location: ModelLocation, module: Module) -> TransformerFolder:
    """Read the folder of an encoder whose hidden states are pooled."""
    folder = TransformerFolder.read(location, module.folder)
    folder.expect_task("feature-extraction")
    for key in _UNSUPPORTED_SETTINGS:
        if folder.settings.get(key):
            raise UnsupportedModel(
                f"{folder.path('sentence_bert_config.json')}: {key} is not supported in an embedding model."
            )
    return folder


def _read_stages(
    reader: StageReader, folder: TransformerFolder, modules: Sequence[Module]
) -> tuple[Stage, ...]:
    """Read the modules after an encoder, of which the first may weigh its layers."""
    if not modules or modules[0].kind != "WeightedLayerPooling":
        return reader.read(modules)
    if not read_flag(folder.config, "output_hidden_states", default=False):
        # sentence-transformers then has the last layer alone, and passes it on.
        return reader.read(modules[1:])
    layers = folder.encoder.given_layers
    if not layers:
        raise UnsupportedModel(
            f"{reader.directory / MODULES_FILE}: WeightedLayerPooling is not supported for the architecture "
            f"{show(folder.config.get('model_type'))}."
        )
    return (reader.read_layers(modules[0], layers), *reader.read(modules[1:]))


# The tokens without a weight in sparse embeddings; the defaults are those of XLM-RoBERTa's tokenizer.
_UNWEIGHTED = {"cls_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def _find_token_heads(folder: TransformerFolder) -> TokenHeads | None:
    """Return the heads in the folder of the encoder, if both are there."""
    files = find_head_files([path.name for path in folder.path("").iterdir()])
    if not files:
        return None
    unweighted = (folder.special_token(name) or default for name, default in _UNWEIGHTED.items())
    weights_file, vectors_file = map(folder.path, files)
    return TokenHeads(weights_file, vectors_file, tuple(unweighted))


def _exclude_prompt(stage: Stage) -> Stage:
    return replace(stage, include_prompt=False) if isinstance(stage, Pooling) else stage


_STRATEGIES = ("max", "sum")
_ACTIVATIONS = ("relu", "log1p_relu")


def describe_sparse_model(
    location: ModelLocation, modules: tuple[Module, ...], settings: ModelSettings
) -> ModelDescription:
    """Describe `SparseEncoder` modules."""
    directory = location.directory
    kinds = [module.kind for module in modules]
    has_autoencoder = kinds[:1] + kinds[-1:] == ["Transformer", "SparseAutoEncoder"] and "Pooling" in kinds
    # MLMTransformer is the name of Transformer before release 5.4.
    if not has_autoencoder and kinds not in (
        ["Transformer", "SpladePooling"],
        ["MLMTransformer", "SpladePooling"],
    ):
        raise UnsupportedModel(
            f"{directory / MODULES_FILE} lists {name_kinds(modules)}; supported in a sparse model are "
            "Transformer and SpladePooling, or Transformer, Pooling and SparseAutoEncoder."
        )
    if settings.values.get("max_active_dims") is not None and not has_autoencoder:
        raise UnsupportedModel(
            f"{settings.path}: max_active_dims is not supported without SparseAutoEncoder."
        )
    similarity = settings.values.get("similarity_fn_name")
    if similarity not in (None, "dot"):
        raise UnsupportedModel(
            f"{settings.path}: similarity_fn_name {show(similarity)} is not supported in a sparse model: "
            "sparse embeddings are compared by dot product alone."
        )
    if has_autoencoder:
        return settings.add_prompts(_describe_autoencoder(location, modules, settings))
    folder = TransformerFolder.read(location, modules[0].folder)
    if kinds[0] == "Transformer":
        folder.expect_task("fill-mask")
    splade = _read_splade(location, modules[1])
    return settings.add_prompts(make_sparse(folder.describe(location), splade))


def _describe_autoencoder(
    location: ModelLocation, modules: tuple[Module, ...], settings: ModelSettings
) -> ModelDescription:
    folder = _read_encoder_folder(location, modules[0])
    reader = StageReader.after(location.directory, folder.encoder)
    stages = _read_stages(reader, folder, modules[1:-1])
    autoencoder = _read_autoencoder(location, modules[-1], reader.width, settings)
    return replace(
        folder.describe(location),
        task=Task.SPARSE,
        stages=(*stages, autoencoder),
        dim=autoencoder.width,
    )


def _read_autoencoder(
    location: ModelLocation, module: Module, width: int, settings: ModelSettings
) -> SparseAutoEncoder:
    """Read a `SparseAutoEncoder` of embeddings of this width. `max_active_dims` takes precedence over `k`."""
    name = join(module.folder, "config.json")
    config, path = require_object(location.directory, name), location.directory / name
    inputs, outputs = (
        read_size(config, "input_dim", 0, file=path),
        read_size(config, "hidden_dim", 512, file=path),
    )
    if inputs != width:
        raise CorruptModel(
            f"{path}: by input_dim the module reads {inputs} dimensions, but its input has {width}."
        )
    active, key = read_size(config, "k", 8, file=path), f"{path}: k"
    if settings.values.get("max_active_dims") is not None:
        key = f"{settings.path}: max_active_dims"
        active = check_whole_number(settings.values["max_active_dims"], key)
    if active > outputs:
        raise CorruptModel(f"{key} is {active}, but by hidden_dim the embeddings have {outputs} dimensions.")
    normalizes = read_flag(config, "normalize", default=False, file=path)
    if normalizes and inputs == 1:
        raise CorruptModel(f"{path}: normalize needs an input_dim above 1.")
    file = find_module_weights(location.directory, module.folder)
    return SparseAutoEncoder(file, inputs, outputs, active, normalize=normalizes)


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


# sentence-transformers has no limit. Requests with longer texts are refused for their size.
LONGEST_INPUT = 2**20


def describe_static_model(
    location: ModelLocation, modules: tuple[Module, ...], settings: ModelSettings
) -> ModelDescription:
    """Describe `SentenceTransformer` modules that begin with a StaticEmbedding.

    Raises `CorruptModel` if files are missing, or tokens have no embedding.
    """
    directory, folder = location.directory, modules[0].folder
    weights_files = find_weights(directory, folder)
    encoder = StaticConfig.of(Weights.open(*weights_files))
    tokenizer_name = join(folder, "tokenizer.json")
    limits = tokenizer_limits(encoder.vocab_size)
    tokenizer = read_object(directory, tokenizer_name, limits=limits)
    if tokenizer is None:
        raise CorruptModel(f"{directory / tokenizer_name} is missing. Download the model again.")
    path = directory / tokenizer_name
    _check_tokens(path, tokenizer, encoder.vocab_size)
    truncation, name = read_mapping(tokenizer, "truncation", file=path), f"{path}: truncation"
    reader = StageReader.after(directory, encoder, pooled=True)
    stages = (Pooling((PoolingMode.MEAN,)), *reader.read(modules[1:]))
    description = ModelDescription(
        name=location.name,
        directory=directory,
        task=Task.EMBED,
        architecture="static",
        encoder=encoder,
        dim=reader.width,
        max_tokens=min(
            read_size(truncation, "max_length", LONGEST_INPUT, most=MOST_TOKENS, file=name), LONGEST_INPUT
        ),
        vocab_size=encoder.vocab_size,
        stages=stages,
        lowercase=False,
        truncate_left=read_choice(truncation, "direction", ("Left", "Right"), file=name) == "Left",
        prompts={},
        default_prompt_name=None,
        config={},
        tokenizer_file=directory / tokenizer_name,
        weights_files=weights_files,
        weights_sha256=location.weights_sha256,
        special_tokens=False,
    )
    return settings.truncate(settings.add_similarity(settings.add_prompts(description)))


def _check_tokens(path: Path, tokenizer: Mapping[str, Any], rows: int) -> None:
    highest = max(token_numbers(tokenizer, path), default=0)
    if highest >= rows:
        raise CorruptModel(
            f"{path} has token ids up to {highest}, but the model has only {rows} token embeddings."
        )
