"""Reads static models (model2vec and similar), whose text embeddings are means of token embeddings.

    tokenizer.json       the tokenizer, used without special tokens
    model.safetensors    `embedding.weight` of sentence-transformers, or `embeddings` of model2vec,
                         optionally with `mapping` (token -> row) and `weights` (of tokens)

Source of the rules: sentence-transformers 6.2, `sentence_transformer/modules/static_embedding.py`.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vecmill.architectures.static import StaticConfig
from vecmill.directory_layouts.modules import Module, StageReader
from vecmill.directory_layouts.sentence_transformers_config import ModelSettings
from vecmill.directory_layouts.transformer_folder import find_weights, join
from vecmill.errors import CorruptModel
from vecmill.models.config_fields import MOST_TOKENS, read_choice, read_mapping, read_size
from vecmill.models.description import ModelDescription
from vecmill.models.directory import read_object
from vecmill.models.location import ModelLocation
from vecmill.models.stages import Pooling, PoolingMode
from vecmill.models.tokenizer_file import token_numbers, tokenizer_limits
from vecmill.models.weights import Weights
from vecmill.values.task import Task

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
    reader = StageReader(directory, encoder.hidden_size, pooled=True)
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
        prompts=MappingProxyType({}),
        default_prompt_name=None,
        config=MappingProxyType({}),
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
