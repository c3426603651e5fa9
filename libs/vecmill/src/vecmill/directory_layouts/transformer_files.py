"""The files of a transformers model: the tokenizer, its settings, and the weights."""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import (
    MOST_TOKENS,
    read_choice,
)
from vecmill.models.directory import find_file, read_object
from vecmill.models.exported import list_other_graphs
from vecmill.models.tokenizer_file import TOKENIZER_CONFIG
from vecmill.tokenization.building.class_names import replaces_tokenizer_code
from vecmill.tokenization.building.vocabulary_files import VOCABULARY_FILES
from vecmill.values.messages import show, show_name

TOKENIZERS = ("tokenizer.json", *VOCABULARY_FILES)


_UNREAD_VOCABULARIES = ("*.model", "*.tiktoken", "tekken.json")


# The names of weights files, the preferred name first. An index has the name of the file that it replaces.
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")


_MOST_NAMED = 4  # of files, in a message


def join(folder: str, name: str) -> str:
    """Return the path of `name` in `folder`, relative to the model."""
    return str(PurePosixPath(folder, name))


def read_tokenizer_config(directory: Path, folder: str) -> dict[str, Any]:
    """Read tokenizer_config.json, empty if it is missing. Raises `UnsupportedModel` if it names code."""
    config = read_object(directory, join(folder, TOKENIZER_CONFIG)) or {}
    if config.get("auto_map") and not replaces_tokenizer_code(config):
        raise UnsupportedModel(
            f"{directory / folder / TOKENIZER_CONFIG}: auto_map names {show(config['auto_map'])}: the "
            "tokenizer's own code is never run. Write a tokenizer.json, if the tokenizer supports it."
        )
    return config


def truncates_left(tokenizer_config: Mapping[str, Any]) -> bool:
    """Return whether truncation keeps the end of a text. Raises `UnsupportedModel` for unknown values."""
    side = read_choice(tokenizer_config, "truncation_side", ("left", "right"), file=TOKENIZER_CONFIG)
    return side == "left"


def find_tokenizer(directory: Path, folder: str) -> Path:
    """Return the file to build a tokenizer from. Raises `UnsupportedModel` or `CorruptModel`."""
    for name in TOKENIZERS:
        file = find_file(directory, join(folder, name))
        if file is not None:
            return file
    path = directory / folder
    other = next((file for pattern in _UNREAD_VOCABULARIES for file in sorted(path.glob(pattern))), None)
    if other is not None:
        raise UnsupportedModel(
            f"{other} is a vocabulary that vecmill does not read, and there is no tokenizer.json. Write it "
            "with "
            "`transformers.AutoTokenizer.from_pretrained(directory).save_pretrained(directory)`."
        )
    raise CorruptModel(
        f"{path} has no tokenizer: neither {' nor '.join(TOKENIZERS)} is there. Download the model again."
    )


def find_weights(directory: Path, folder: str) -> tuple[Path, ...]:
    """Return the weights files: safetensors, else PyTorch's. Raises `CorruptModel`."""
    for name in _WEIGHTS:
        path = find_file(directory, join(folder, name))
        if path is not None:
            return (path,)
        index = read_object(directory, join(folder, f"{name}.index.json"))
        if index is not None:
            return _find_shards(directory, folder, f"{name}.index.json", index)
    missing = f"{directory / folder / 'model.safetensors'} is missing, and there is no pytorch_model.bin."
    graphs = list_other_graphs(directory, folder)
    if graphs:
        names = " and ".join(map(show_name, graphs[:_MOST_NAMED]))
        raise CorruptModel(
            f"{missing} There is {names}, which is not chosen by itself: name the graph in place of the "
            f"directory, {directory / graphs[0]}."
        )
    raise CorruptModel(
        f"{missing} Download the model again; if the hub has only an ONNX graph, use `vecmill pull --onnx`."
    )


def refuse_quantized_weights(path: Path, config: Mapping[str, Any]) -> None:
    """Raise `UnsupportedModel` for weights that another program has quantised."""
    if config.get("quantization_config"):
        raise UnsupportedModel(
            f"{path}: quantization_config is not supported. Use weights in float32, bfloat16 or float16."
        )


def find_module_weights(directory: Path, folder: str) -> Path:
    """Return the weights file of a module after the encoder. Raises the same errors as `find_weights`."""
    paths = find_weights(directory, folder)
    if len(paths) != 1:
        raise UnsupportedModel(
            f"{directory / folder}: weights of a module in several files are not supported."
        )
    return paths[0]


_MOST_SHARDS = 1_024  # the largest published models have 200


def _find_shards(directory: Path, folder: str, name: str, index: Mapping[str, Any]) -> tuple[Path, ...]:
    shards = index.get("weight_map")
    if (
        not isinstance(shards, dict)
        or not shards
        or not all(isinstance(file, str) for file in shards.values())
    ):
        raise CorruptModel(f"{directory / folder / name}: weight_map must name the files of tensors.")
    files = sorted(set(shards.values()))
    if len(files) > _MOST_SHARDS:
        raise CorruptModel(
            f"{directory / folder / name}: weight_map names {len(files)} files; at most {_MOST_SHARDS} are "
            "read."
        )
    paths = []
    for shard in files:
        path = find_file(directory, join(folder, shard))
        if path is None:
            raise CorruptModel(
                f"{directory / folder / shard} is missing; {name} lists it. Download the model again."
            )
        paths.append(path)
    return tuple(paths)


def check_length(path: Path, source: str, value: object) -> int:
    """Return the longest input in tokens that a setting names. Raises `CorruptModel` if it is invalid."""
    # 1e30 stands for "no limit", and some files write it as a float.
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 1:
        raise CorruptModel(f"{path}: {source} must be a number of at least 1.")
    return int(min(value, MOST_TOKENS))


def read_longest_input(path: Path, tokenizer_config: Mapping[str, Any]) -> int | None:
    """Return the longest input in tokens that tokenizer_config.json in the folder `path` names, if any.

    `max_len` is the older key. Raises `CorruptModel` if the value is invalid. Source: transformers 5.23,
    `tokenization_utils_base.py`.
    """
    key = "model_max_length" if "model_max_length" in tokenizer_config else "max_len"
    value = tokenizer_config.get(key)
    return None if value is None else check_length(path, f"{TOKENIZER_CONFIG}: {key}", value)
