"""Reads the settings of LoRA adapters, and the names of their tensors, as the package peft saves them.

    adapter_config.json         the base, the rank, the scaling, the task
    adapter_model.safetensors   for each adapted module, by its name in the base (or adapter_model.bin):
        MODULE.lora_A.weight    A, (rank, inputs)
        MODULE.lora_B.weight    B, (outputs, rank)
        MODULE.lora_embedding_A, MODULE.lora_embedding_B    (rank, rows) and (width, rank), of a table
        MODULE.weight, MODULE.bias                          whole tensors, of the base or new

The scaling is `lora_alpha` / rank, or `lora_alpha` / sqrt(rank) with `use_rslora`. `models.merged_weights`
merges the tensors into those of the base.

Sources: Hu et al., "LoRA" (2021), section 4.1; Kalajdzievski, "A rank stabilization scaling factor for
fine-tuning with LoRA" (2023); peft 0.21, `tuners/lora/config.py`,
`utils/save_and_load.py`.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import (
    check_number,
    check_text,
    check_whole_number,
    read_flag,
    read_mapping,
    read_size,
    read_text,
    read_texts,
)
from vecmill.models.directory import find_file, read_object
from vecmill.models.weights import open_weights_file
from vecmill.values.messages import not_supported, show, show_name

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")

_MOST_RANK = 2**14
_MOST_PATTERNS = 2**12  # each is compared with each adapted module
_DEFAULT_RANK = _DEFAULT_ALPHA = 8  # of peft
# Keys that are read here, that chose what was trained, or that matter to training alone.
_KNOWN_KEYS = frozenset(
    {
        "alpha_pattern",
        "auto_mapping",
        "base_model_name_or_path",
        "bias",
        "corda_config",
        "eva_config",
        "exclude_modules",
        "fan_in_fan_out",  # of transformers' Conv1D; peft ignores it for Linear, the class of all graphs here
        "inference_mode",
        "init_lora_weights",
        "layers_pattern",
        "layers_to_transform",
        "loftq_config",
        "lora_alpha",
        "lora_dropout",
        "lora_ga_config",
        "megatron_core",
        "merge_weights",  # of peft before 0.3: whether training merged the weights for evaluation
        "modules_to_save",
        "peft_type",
        "peft_version",
        "qalora_group_size",
        "r",
        "rank_pattern",
        "revision",
        "runtime_config",
        "target_modules",
        "task_type",
        "use_rslora",
    }
)
# Other initial values, such as "pissa", change the weights of the base too.
_INITIAL_VALUES = (None, True, False, "gaussian", "eva", "orthogonal")
_BIASES = (None, "none", "all", "lora_only")  # trained biases are saved as whole tensors
# Patterns are regular expressions in peft. Names are enough, and cannot take long to match.
_PATTERN = re.compile(r"\^?[\w.\\-]+", re.ASCII)
_PREFIX = "base_model.model."
# Task of peft -> the end of the name of transformers' class that the adapter was trained on.
_HEADS = {"SEQ_CLS": "ForSequenceClassification", "TOKEN_CLS": "ForTokenClassification"}
_LOGITS = re.compile(r"(?:.+\.)?(?:classifier|score)(?:\.out_proj)?\.weight")
_VOCABULARY = re.compile(
    r"(?:.+\.)?(?:word_embeddings|embed_tokens|tok_embeddings|shared)(?:\.base_layer)?\.weight"
)


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter: its settings, and the file of its tensors.

    `base` is the model that it belongs to, as the file names it. `ranks` and `alphas` are those of modules
    whose names end in the key. `saved` are names of modules that replace those of the base. `class_end` ends
    the name of transformers' class with the head that the adapter was trained with; `None` for an encoder.
    """

    config_file: Path
    weights_file: Path
    base: str | None
    revision: str | None
    rank: int
    alpha: float
    ranks: Mapping[str, int]
    alphas: Mapping[str, float]
    is_rank_stabilized: bool
    saved: tuple[str, ...]
    class_end: str | None

    @classmethod
    def find(cls, directory: Path, folder: str = "") -> Self | None:
        """Read the adapter in a folder of a model directory; `None` if there is none.

        Raises `CorruptModel` for invalid settings or a missing file, `UnsupportedModel` for other kinds of
        adapters and settings that change the outputs.
        """
        name = str(Path(folder, ADAPTER_CONFIG))
        config = read_object(directory, name)
        if config is None:
            return None
        file = directory / name
        _refuse_settings(config, file)
        found = (find_file(directory, str(Path(folder, each))) for each in ADAPTER_WEIGHTS)
        weights = next(filter(None, found), None)
        if weights is None:
            wanted, other = ADAPTER_WEIGHTS
            raise CorruptModel(f"{file.with_name(wanted)} is missing, and there is no {other}.")
        alpha = config.get("lora_alpha")
        return cls(
            config_file=file,
            weights_file=weights,
            base=read_text(config, "base_model_name_or_path", file=file),
            revision=read_text(config, "revision", file=file),
            rank=read_size(config, "r", _DEFAULT_RANK, most=_MOST_RANK, file=file),
            alpha=_DEFAULT_ALPHA if alpha is None else check_number(alpha, f"{file}: lora_alpha"),
            ranks={
                key: check_whole_number(value, f"{file}: rank_pattern", most=_MOST_RANK)
                for key, value in _read_pattern(config, "rank_pattern", file)
            },
            alphas={
                key: check_number(value, f"{file}: alpha_pattern")
                for key, value in _read_pattern(config, "alpha_pattern", file)
            },
            is_rank_stabilized=read_flag(config, "use_rslora", default=False, file=file),
            saved=read_texts(config, "modules_to_save", file=file),
            class_end=_read_class_end(config, file),
        )

    def rank_of(self, module: str) -> int:
        """Return the rank of the matrices of a module."""
        return next((rank for key, rank in self.ranks.items() if _matches(key, module)), self.rank)

    def scaling_of(self, module: str) -> float:
        """Return the factor of the product of a module's matrices."""
        alpha = next((alpha for key, alpha in self.alphas.items() if _matches(key, module)), self.alpha)
        rank = self.rank_of(module)
        return alpha / (math.sqrt(rank) if self.is_rank_stabilized else rank)

    def change_config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return config.json of the base for the model with the adapter: its head, labels and vocabulary.

        Reads the header of the tensors. Raises the same errors as `Weights.open`, and `CorruptModel` for one
        without rows.
        """
        changed = dict(config)
        if self.class_end is not None:
            name = next(iter(read_texts(config, "architectures")), "")
            changed["architectures"] = [name.partition("For")[0].removesuffix("Model") + self.class_end]
        file = open_weights_file(self.weights_file)
        for name, own in list_tensors(file, self.weights_file).items():
            shape = file.get_slice(own).get_shape()
            key = self._read_by(name)
            if key is None or len(shape) != 2:
                continue
            if not shape[0]:
                raise CorruptModel(f"{self.weights_file}: the tensor {own!r} has no rows.")
            changed[key] = shape[0]
        return changed

    def _read_by(self, name: str) -> str | None:
        """Return the key of config.json that is the number of rows of a whole tensor, if any."""
        if self.class_end is not None and _LOGITS.fullmatch(name):
            return "num_labels"
        return "vocab_size" if _VOCABULARY.fullmatch(name) else None

    def describe_scaling(self) -> str:
        """Return all that determines the scaling, for a fingerprint."""
        patterns = (dict(self.ranks), dict(self.alphas))
        return repr((self.rank, self.alpha, *patterns, self.is_rank_stabilized))


def _refuse_settings(config: Mapping[str, Any], file: Path) -> None:
    kind = read_text(config, "peft_type", file=file)
    if kind != "LORA":
        raise UnsupportedModel(not_supported(f"{file}: peft_type", kind, ("LORA",)))
    for key, values in (("bias", _BIASES), ("init_lora_weights", _INITIAL_VALUES)):
        if config.get(key) not in values:
            raise UnsupportedModel(f"{file}: {key} {show(config[key])} is not supported.")
    for key, value in config.items():
        if value and key not in _KNOWN_KEYS:
            raise UnsupportedModel(f"{file}: {show_name(key)} {show(value)} is not supported.")


def _read_class_end(config: Mapping[str, Any], file: Path) -> str | None:
    """Return the end of the class of `task_type`, else of the class that peft notes for other tasks."""
    task = read_text(config, "task_type", file=file)
    if task is not None:
        return _HEADS.get(task)
    mapping = read_mapping(config, "auto_mapping", file=file)
    name = read_text(mapping, "base_model_class", file=f"{file}: auto_mapping") or ""
    return next((end for end in _HEADS.values() if name.endswith(end)), None)


def _read_pattern(config: Mapping[str, Any], key: str, file: Path) -> Iterator[tuple[str, Any]]:
    patterns = read_mapping(config, key, file=file)
    if len(patterns) > _MOST_PATTERNS:
        raise CorruptModel(f"{file}: {key} has {len(patterns)} patterns; at most {_MOST_PATTERNS} are read.")
    for pattern, value in patterns.items():
        if not _PATTERN.fullmatch(check_text(pattern, f"{file}: {key}")):
            raise UnsupportedModel(
                f"{file}: {key} has the pattern {show(pattern)}; supported are names of modules."
            )
        yield pattern.replace("\\", ""), value


def _matches(key: str, module: str) -> bool:
    if key.startswith("^"):
        return module == key[1:]
    return module == key or module.endswith(f".{key}")


def list_tensors(file: Any, path: Path) -> dict[str, str]:
    """Return the tensors of an adapter by the names of its class. Raises `CorruptModel` for one name twice.

    peft may save a module of `modules_to_save` three times: as the original, as the trained module, and as
    the trained module by its plain name.
    """
    plain = {own.removeprefix(_PREFIX) for own in file.keys()}  # noqa: SIM118  # no mapping
    names: dict[str, str] = {}
    for own in list(file.keys()):
        name = own.removeprefix(_PREFIX)
        short = name.replace(".modules_to_save.", ".")
        if ".original_module." in name or (short != name and short in plain):
            continue
        if short in names:
            raise CorruptModel(f"{path} has the tensor {short!r} twice.")
        names[short] = own
    return names
