"""What a sentence-transformers model directory says of itself, read without touching its weights.

    modules.json                        the stages: Transformer, Pooling and, perhaps, Normalize
    config.json                         the encoder: family and sizes
    sentence_bert_config.json           the longest input, lower-casing
    tokenizer_config.json               the longest input where the file above is silent
    1_Pooling/config.json               how token rows become one row
    config_sentence_transformers.json   prompts

Source of the rules: sentence-transformers 6.2, `base/modules/transformer.py`, `base/model.py` and
`sentence_transformer/modules/pooling.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.bert import BertConfig
from vecmill.models.directory import find_file, read_json, read_object
from vecmill.models.location import ModelLocation


class Task(StrEnum):
    """What a model computes from a text."""

    EMBED = "embed"  # one row


class PoolingMode(StrEnum):
    """How token rows become one row. The values are those of sentence-transformers."""

    CLS = "cls"
    MEAN = "mean"


@dataclass(frozen=True, slots=True)
class Pooling:
    """How token rows become one row; without `include_prompt` the prompt's tokens are left out."""

    mode: PoolingMode
    include_prompt: bool = True


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """A model, described. Set by `describe_model`.

    `architecture` is transformers' `model_type`; `dim` is the length of a row; `max_tokens` counts special
    tokens too; `lowercase` asks for lower-casing before the tokenizer's own normalisation;
    `config` is the whole `config.json`. `weights_sha256` is what the weights must hash to, if promised.
    """

    name: str
    directory: Path
    task: Task
    architecture: str
    dim: int
    max_tokens: int
    vocab_size: int
    pooling: Pooling
    normalize: bool
    lowercase: bool
    truncate_left: bool
    prompts: Mapping[str, str]
    default_prompt_name: str | None
    config: Mapping[str, Any]
    tokenizer_file: Path
    weights_file: Path
    weights_sha256: str | None


# One reader of `config.json` per family; graphs/ has one builder for each.
_ConfigReader = Callable[[Mapping[str, Any]], BertConfig]
_CONFIGS: Mapping[str, _ConfigReader] = MappingProxyType({"bert": BertConfig.read})

_POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}

# Settings of the Transformer stage that change rows and are not done here.
_UNSUPPORTED_SETTINGS = (
    "tokenizer_args",
    "processor_kwargs",
    "config_args",
    "config_kwargs",
    "processing_kwargs",
    "query_length",
    "document_length",
    "query_expansion",
    "tokenizer_name_or_path",
)


@dataclass(frozen=True, slots=True)
class _Stages:
    """The directories of the stages in `modules.json`, as paths relative to the model."""

    transformer: str
    pooling: str
    normalize: bool


def describe_model(location: ModelLocation) -> ModelDescription:
    """Read the settings of the model at `location`.

    Raises `CorruptModel` if a file is broken or missing, `UnsupportedModel` if the model asks for
    something that is not done here; both name the file.
    """
    directory = location.directory
    stages = _read_stages(directory)
    encoder = directory / stages.transformer
    config = _require_object(directory, _join(stages.transformer, "config.json"))
    bert = _read_config(config, encoder)
    settings = read_object(directory, _join(stages.transformer, "sentence_bert_config.json")) or {}
    _check_settings(settings, encoder)
    tokenizer_config = read_object(directory, _join(stages.transformer, "tokenizer_config.json")) or {}
    prompts, default_prompt_name = _read_prompts(directory)
    return ModelDescription(
        name=location.name,
        directory=directory,
        task=Task.EMBED,
        architecture=str(config["model_type"]),
        dim=bert.hidden_size,
        max_tokens=_longest_input(settings, tokenizer_config, bert, encoder),
        vocab_size=bert.vocab_size,
        pooling=_read_pooling(directory, _join(stages.pooling, "config.json"), bert.hidden_size),
        normalize=stages.normalize,
        lowercase=bool(settings.get("do_lower_case", False)),
        truncate_left=tokenizer_config.get("truncation_side") == "left",
        prompts=prompts,
        default_prompt_name=default_prompt_name,
        config=MappingProxyType(config),
        tokenizer_file=_find_tokenizer(directory, stages.transformer),
        weights_file=_find_weights(directory, stages.transformer),
        weights_sha256=location.weights_sha256,
    )


def _join(folder: str, name: str) -> str:
    return str(PurePosixPath(folder, name))


def _require_object(directory: Path, name: str) -> dict[str, Any]:
    document = read_object(directory, name)
    if document is None:
        raise CorruptModel(f"{directory / name} is missing. Download the model again.")
    return document


def _read_stages(directory: Path) -> _Stages:
    modules = read_json(directory, "modules.json")
    if modules is None:
        raise UnsupportedModel(
            f"{directory} has no modules.json, so it is no sentence-transformers model. "
            "Save it with sentence-transformers, or name another directory."
        )
    entries = [_read_stage(entry, directory) for entry in modules] if isinstance(modules, list) else []
    kinds = [kind for kind, _ in entries]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise UnsupportedModel(
            f"{directory / 'modules.json'} lists {', '.join(kinds) or 'no modules'}; supported are "
            "Transformer, Pooling and, perhaps, Normalize, in that order."
        )
    return _Stages(entries[0][1], entries[1][1], normalize=len(entries) == 3)


def _read_stage(entry: object, directory: Path) -> tuple[str, str]:
    """The class name and the folder of one entry of `modules.json`."""
    kind = entry.get("type") if isinstance(entry, dict) else None
    path = entry.get("path") if isinstance(entry, dict) else None
    if not isinstance(kind, str) or not isinstance(path, str):
        raise CorruptModel(f"{directory / 'modules.json'}: each module needs a type and a path.")
    if not kind.startswith("sentence_transformers."):
        raise UnsupportedModel(
            f"{directory / 'modules.json'} names {kind}, code that comes with the model, which is never run."
        )
    # Releases moved the classes about and kept their names.
    return kind.rpartition(".")[2], path


def _read_config(config: Mapping[str, Any], encoder: Path) -> BertConfig:
    architecture = str(config.get("model_type"))
    if architecture not in _CONFIGS:
        raise UnsupportedModel(
            f"{encoder / 'config.json'}: model_type {architecture!r} is not supported yet; "
            f"supported: {', '.join(sorted(_CONFIGS))}."
        )
    return _CONFIGS[architecture](config)


def _check_settings(settings: Mapping[str, Any], encoder: Path) -> None:
    for key in _UNSUPPORTED_SETTINGS:
        value = settings.get(key)
        if isinstance(value, dict):
            value = {name: item for name, item in value.items() if name != "trust_remote_code"}
        if value:
            raise UnsupportedModel(f"{encoder / 'sentence_bert_config.json'}: {key} is not supported yet.")
    task = settings.get("transformer_task", "feature-extraction")
    if task != "feature-extraction":
        raise UnsupportedModel(
            f"{encoder / 'sentence_bert_config.json'}: transformer_task {task!r} is not supported yet; "
            "only 'feature-extraction' is."
        )


def _longest_input(
    settings: Mapping[str, Any], tokenizer_config: Mapping[str, Any], bert: BertConfig, encoder: Path
) -> int:
    """The longest input in tokens: what is written, and never more than there are positions."""
    for source, value in (
        ("sentence_bert_config.json: max_seq_length", settings.get("max_seq_length")),
        ("tokenizer_config.json: model_max_length", tokenizer_config.get("model_max_length")),
    ):
        if value is None:
            continue
        # 1e30 stands for "no limit", and some files write it as a float.
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 1:
            raise CorruptModel(f"{encoder}: {source} must be a number of at least 1.")
        return int(min(value, bert.max_position_embeddings))
    return bert.max_position_embeddings


def _read_pooling(directory: Path, name: str, hidden_size: int) -> Pooling:
    config = _require_object(directory, name)
    width = config.get("embedding_dimension", config.get("word_embedding_dimension", hidden_size))
    if width != hidden_size:
        raise CorruptModel(
            f"{directory / name} pools rows of {width}, but config.json has hidden_size {hidden_size}."
        )
    mode = config.get("pooling_mode")
    if mode is None:
        mode = [kind for flag, kind in _POOLING_FLAGS.items() if config.get(flag)] or ["mean"]
    modes = [mode] if isinstance(mode, str) else list(mode)
    if len(modes) != 1 or modes[0] not in set(PoolingMode):
        raise UnsupportedModel(
            f"{directory / name}: pooling {' + '.join(map(str, modes))} is not supported yet; "
            f"supported: {', '.join(PoolingMode)}."
        )
    return Pooling(PoolingMode(modes[0]), include_prompt=bool(config.get("include_prompt", True)))


def _read_prompts(directory: Path) -> tuple[Mapping[str, str], str | None]:
    name = "config_sentence_transformers.json"
    config = read_object(directory, name) or {}
    written = config.get("prompts") or {}
    if not isinstance(written, dict) or not all(isinstance(text, str | None) for text in written.values()):
        raise CorruptModel(f"{directory / name}: prompts must be an object of strings.")
    prompts = {key: text or "" for key, text in written.items()}
    default = config.get("default_prompt_name")
    if default is not None and default not in prompts:
        raise CorruptModel(f"{directory / name}: default_prompt_name {default!r} is not one of its prompts.")
    return MappingProxyType(prompts), default


def _find_tokenizer(directory: Path, folder: str) -> Path:
    path = find_file(directory, _join(folder, "tokenizer.json"))
    if path is None:
        raise UnsupportedModel(
            f"{directory / folder} has no tokenizer.json. Save the model once with a recent "
            "sentence-transformers, which writes it."
        )
    return path


def _find_weights(directory: Path, folder: str) -> Path:
    path = find_file(directory, _join(folder, "model.safetensors"))
    if path is not None:
        return path
    for name, what in (
        ("model.safetensors.index.json", "weights split over several files"),
        ("pytorch_model.bin", "weights as a pickle, which runs code when read,"),
    ):
        if find_file(directory, _join(folder, name)) is not None:
            raise UnsupportedModel(
                f"{directory / folder / name}: {what} are not supported. "
                "Save the model as one model.safetensors."
            )
    raise CorruptModel(f"{directory / folder / 'model.safetensors'} is missing. Download the model again.")
