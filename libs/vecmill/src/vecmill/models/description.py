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

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.directory import find_file, read_json, read_object
from vecmill.models.encoder import EncoderConfig, read_encoder
from vecmill.models.heads import Head
from vecmill.models.location import ModelLocation
from vecmill.models.stages import Normalize, Pooling, PoolingMode, Stage


class Task(StrEnum):
    """What a model computes from a text, or a pair of them."""

    EMBED = "embed"  # one row
    RERANK = "rerank"  # one score for a query and a document
    CLASSIFY = "classify"  # a score for each label
    CLASSIFY_TOKENS = "classify_tokens"  # a score for each label and token
    SPARSE = "sparse"  # a weight for each entry of the vocabulary, mostly zeros
    MULTI_VECTOR = "multi_vector"  # one row for each token


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """A model, described. Set by `describe_model`.

    `architecture` is transformers' `model_type` and `encoder` its settings; `dim` is the length of a row;
    `max_tokens` counts special tokens too; `stages` lead from hidden states to rows; `lowercase` asks for
    lower-casing before the tokenizer's own normalisation; `config` is the whole `config.json`.
    `head` is what a task model has in place of stages. `weights_sha256` is what the weights must hash to, if
    promised.
    """

    name: str
    directory: Path
    task: Task
    architecture: str
    encoder: EncoderConfig
    dim: int
    max_tokens: int
    vocab_size: int
    stages: tuple[Stage, ...]
    lowercase: bool
    truncate_left: bool
    prompts: Mapping[str, str]
    default_prompt_name: str | None
    config: Mapping[str, Any]
    tokenizer_file: Path
    weights_file: Path
    weights_sha256: str | None
    head: Head | None = None

    @property
    def normalize(self) -> bool:
        """Whether rows have unit length."""
        return Normalize() in self.stages[-1:]


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
class _Modules:
    """The folders of the modules in `modules.json`, as paths relative to the model."""

    transformer: str
    pooling: str
    normalize: bool


def describe_model(location: ModelLocation) -> ModelDescription:
    """Read the settings of the model at `location`.

    Raises `CorruptModel` if a file is broken or missing, `UnsupportedModel` if the model asks for
    something that is not done here; both name the file.
    """
    directory = location.directory
    modules = _read_modules(directory)
    folder = directory / modules.transformer
    config = _require_object(directory, _join(modules.transformer, "config.json"))
    encoder = read_encoder(config, str(folder / "config.json"))
    settings = read_object(directory, _join(modules.transformer, "sentence_bert_config.json")) or {}
    _check_settings(settings, folder)
    tokenizer_config = read_object(directory, _join(modules.transformer, "tokenizer_config.json")) or {}
    prompts, default_prompt_name = _read_prompts(directory)
    pooling = _read_pooling(directory, _join(modules.pooling, "config.json"), encoder.hidden_size)
    return ModelDescription(
        name=location.name,
        directory=directory,
        task=Task.EMBED,
        architecture=str(config["model_type"]),
        encoder=encoder,
        dim=encoder.hidden_size * len(pooling.modes),
        max_tokens=_longest_input(settings, tokenizer_config, encoder, folder),
        vocab_size=encoder.vocab_size,
        stages=(pooling, Normalize()) if modules.normalize else (pooling,),
        lowercase=bool(settings.get("do_lower_case", False)),
        truncate_left=tokenizer_config.get("truncation_side") == "left",
        prompts=prompts,
        default_prompt_name=default_prompt_name,
        config=MappingProxyType(config),
        tokenizer_file=_find_tokenizer(directory, modules.transformer),
        weights_file=_find_weights(directory, modules.transformer),
        weights_sha256=location.weights_sha256,
    )


def _join(folder: str, name: str) -> str:
    return str(PurePosixPath(folder, name))


def _require_object(directory: Path, name: str) -> dict[str, Any]:
    document = read_object(directory, name)
    if document is None:
        raise CorruptModel(f"{directory / name} is missing. Download the model again.")
    return document


def _read_modules(directory: Path) -> _Modules:
    modules = read_json(directory, "modules.json")
    if modules is None:
        raise UnsupportedModel(
            f"{directory} has no modules.json, so it is no sentence-transformers model. "
            "Save it with sentence-transformers, or name another directory."
        )
    entries = [_read_module(entry, directory) for entry in modules] if isinstance(modules, list) else []
    kinds = [kind for kind, _ in entries]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise UnsupportedModel(
            f"{directory / 'modules.json'} lists {', '.join(kinds) or 'no modules'}; supported are "
            "Transformer, Pooling and, perhaps, Normalize, in that order."
        )
    return _Modules(entries[0][1], entries[1][1], normalize=len(entries) == 3)


def _read_module(entry: object, directory: Path) -> tuple[str, str]:
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


def _check_settings(settings: Mapping[str, Any], folder: Path) -> None:
    for key in _UNSUPPORTED_SETTINGS:
        value = settings.get(key)
        if isinstance(value, dict):
            value = {name: item for name, item in value.items() if name != "trust_remote_code"}
        if value:
            raise UnsupportedModel(f"{folder / 'sentence_bert_config.json'}: {key} is not supported yet.")
    task = settings.get("transformer_task", "feature-extraction")
    if task != "feature-extraction":
        raise UnsupportedModel(
            f"{folder / 'sentence_bert_config.json'}: transformer_task {task!r} is not supported yet; "
            "only 'feature-extraction' is."
        )


def _longest_input(
    settings: Mapping[str, Any], tokenizer_config: Mapping[str, Any], encoder: EncoderConfig, folder: Path
) -> int:
    """The longest input in tokens: what is written, and never more than the encoder can position."""
    bound = encoder.max_input_tokens
    for source, value in (
        ("sentence_bert_config.json: max_seq_length", settings.get("max_seq_length")),
        ("tokenizer_config.json: model_max_length", tokenizer_config.get("model_max_length")),
    ):
        if value is None:
            continue
        # 1e30 stands for "no limit", and some files write it as a float.
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 1:
            raise CorruptModel(f"{folder}: {source} must be a number of at least 1.")
        return int(value if bound is None else min(value, bound))
    if bound is None:
        raise UnsupportedModel(
            f"{folder}: neither max_seq_length nor model_max_length says how long texts may be."
        )
    return bound


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
    if not set(modes) <= set(PoolingMode):
        raise UnsupportedModel(
            f"{directory / name}: pooling {' + '.join(map(str, modes))} is not supported yet; "
            f"supported: {', '.join(PoolingMode)}."
        )
    return Pooling(tuple(map(PoolingMode, modes)), include_prompt=bool(config.get("include_prompt", True)))


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
