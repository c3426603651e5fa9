"""Reads LoRA adapters as the package peft saves them, and merges them into the weights of their base.

    adapter_config.json         the base, the rank, the scaling, the task
    adapter_model.safetensors   for each adapted module, by its name in the base (or adapter_model.bin):
        MODULE.lora_A.weight    A, (rank, inputs)
        MODULE.lora_B.weight    B, (outputs, rank)
        MODULE.lora_embedding_A, MODULE.lora_embedding_B    (rank, rows) and (width, rank), of a table
        MODULE.weight, MODULE.bias                          whole tensors, of the base or new

A matrix W of the base becomes W + s B A, and a table of embeddings W + s (B A)^T. The scaling s is
`lora_alpha` / rank, or `lora_alpha` / sqrt(rank) with `use_rslora`. A tensor is merged when it is read, so
memory holds one merged tensor at a time.

Sources: Hu et al., "LoRA" (2021), section 4.1; Kalajdzievski, "A rank stabilization scaling factor for
fine-tuning with LoRA" (2023); peft 0.19, `tuners/lora/config.py`, `tuners/lora/layer.py`,
`utils/save_and_load.py`.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np

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
from vecmill.models.weights import FLOATS, Weights, open_weights_file
from vecmill.values.aliases import FloatArray
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
_CLASS_END = re.compile(r"(?:For[A-Z]\w*|LMHeadModel|Model)$")
_PARTS = re.compile(r"(?P<module>.+)\.(?:lora_(?P<part>[AB])\.weight|lora_embedding_(?P<row>[AB]))")


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
            changed["architectures"] = [_CLASS_END.sub("", name) + self.class_end]
        file = open_weights_file(self.weights_file)
        for name, own in _list_names(file, self.weights_file).items():
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


@dataclass(frozen=True, slots=True)
class _Product:
    """The product of two matrices that is added to the tensor `stored` of the base."""

    stored: str
    first: Any  # slices of a file, read when they are indexed
    second: Any
    scaling: float
    is_table: bool

    def add_to(self, values: FloatArray, rows: slice) -> FloatArray:
        """Return `values`, rows of the tensor, with the same rows of the product added."""
        low, high = _read(self.first), _read(self.second)
        change = low[:, rows].T @ high.T if self.is_table else high[rows] @ low
        merged: FloatArray = np.asarray(values, np.float32) + np.float32(self.scaling) * change
        return merged


def _read(view: Any) -> FloatArray:
    import ml_dtypes  # noqa: F401  # registers bfloat16 with numpy

    return np.asarray(view[:], np.float32)


class _MergedSlice:
    """The slice of a merged tensor, with the methods of safetensors' slices."""

    def __init__(self, base: Any, product: _Product) -> None:
        self._base = base
        self._product = product

    def get_shape(self) -> list[int]:
        return list(self._base.get_shape())

    def get_dtype(self) -> str:
        return str(self._base.get_dtype())

    def __getitem__(self, rows: slice) -> FloatArray:
        return self._product.add_to(self._base[rows], rows)


class _MergedFile:
    """A weights file with products added to its tensors, with the methods of safetensors' files."""

    def __init__(self, file: Any, products: Mapping[str, _Product]) -> None:
        self._file = file
        self._products = products

    def keys(self) -> list[str]:
        return list(self._file.keys())

    def get_slice(self, name: str) -> Any:
        base = self._file.get_slice(name)
        return _MergedSlice(base, self._products[name]) if name in self._products else base

    def get_tensor(self, name: str) -> Any:
        tensor = self._file.get_tensor(name)
        return self._products[name].add_to(tensor, slice(None)) if name in self._products else tensor

    def find_offset(self, name: str) -> int | None:
        """Return the byte of the file at which a tensor begins, `None` if it is changed."""
        offset: int | None = None if name in self._products else self._file.find_offset(name)
        return offset


class _SavedFile:
    """The whole tensors of an adapter by the names that they have in the base."""

    def __init__(self, file: Any, names: Mapping[str, str]) -> None:
        self._file = file
        self._names = names

    def keys(self) -> list[str]:
        return list(self._names)

    def get_slice(self, name: str) -> Any:
        return self._file.get_slice(self._names[name])

    def get_tensor(self, name: str) -> Any:
        return self._file.get_tensor(self._names[name])

    def find_offset(self, name: str) -> int | None:
        offset: int | None = self._file.find_offset(self._names[name])
        return offset


def open_merged(
    adapter: Adapter, *paths: Path, asked_by: Mapping[str, Any] = MappingProxyType({})
) -> Weights:
    """Open the weights files of the base with the adapter merged in.

    Reads the headers of all files. Raises the same errors as `Weights.open`, and `CorruptModel` if a tensor
    of the adapter lacks its counterpart, or has no tensor of this shape in the base.
    """
    files = {path: open_weights_file(path) for path in paths}
    merging = _Merging(adapter, open_weights_file(adapter.weights_file), files)
    products, saved = merging.pair()
    merged: dict[Path, Any] = {path: _MergedFile(file, products) for path, file in files.items()}
    # The last file of a name is used, so these tensors replace those of the base.
    merged[adapter.weights_file] = _MergedFile(_SavedFile(merging.file, saved), products)
    return Weights(merged, asked_by)


def list_added(adapter: Adapter, *paths: Path) -> list[str]:
    """Return the names of whole tensors that the base does not have. Raises the errors of `open_merged`."""
    files = {path: open_weights_file(path) for path in paths}
    merging = _Merging(adapter, open_weights_file(adapter.weights_file), files)
    merging.pair()
    return merging.added


def touches_embeddings(adapter: Adapter) -> bool:
    """Return whether the adapter changes a table of embeddings."""
    names = open_weights_file(adapter.weights_file).keys()
    return any("lora_embedding_" in name or re.search(r"embed(?!ding_[AB])", name) for name in names)


def _list_names(file: Any, path: Path) -> dict[str, str]:
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


class _Merging:
    """The search for the tensors of the base that the tensors of an adapter belong to."""

    def __init__(self, adapter: Adapter, file: Any, base: Mapping[Path, Any]) -> None:
        self.file = file
        self.added: list[str] = []  # tensors of modules that the base does not have
        self._adapter = adapter
        self._base = {name: one for one in base.values() for name in list(one.keys())}
        self._ends: dict[str, list[str]] = {}
        for name in self._base:
            self._ends.setdefault(name.partition(".")[2], []).append(name)

    def pair(self) -> tuple[dict[str, _Product], dict[str, str]]:
        """Return the products by the names in the base, and the names of whole tensors by those."""
        names = _list_names(self.file, self._adapter.weights_file)
        if not names:
            raise self._corrupt("has no tensors")
        modules: dict[str, bool] = {}
        saved: dict[str, str] = {}
        for name, own in names.items():
            self._check_dtype(own)
            found = _PARTS.fullmatch(name)
            if found is None:
                stored = self._find_saved(name)
                if stored in saved:
                    raise self._corrupt(f"has the tensor {stored!r} of the base twice")
                saved[stored] = own
            else:
                modules[found["module"]] = found["row"] is not None
        products: dict[str, _Product] = {}
        for module, is_table in modules.items():
            product = self._find_product(module, names, saved, is_table=is_table)
            if product.stored in products:
                raise self._corrupt(f"adapts the tensor {product.stored!r} of the base twice")
            products[product.stored] = product
        return products, saved

    def _check_dtype(self, own: str) -> None:
        dtype = self.file.get_slice(own).get_dtype()
        if dtype not in FLOATS:
            supported = ", ".join(sorted(FLOATS))
            raise UnsupportedModel(
                f"{self._adapter.weights_file}: tensor {own!r} holds {dtype}; supported are {supported}."
            )

    def _find_product(
        self, module: str, names: Mapping[str, str], saved: Mapping[str, str], *, is_table: bool
    ) -> _Product:
        parts = ("lora_embedding_A", "lora_embedding_B") if is_table else ("lora_A.weight", "lora_B.weight")
        for part in parts:
            if f"{module}.{part}" not in names:
                raise self._corrupt(f"has no tensor {f'{module}.{part}'!r}, but its counterpart")
        low, high = (self.file.get_slice(names[f"{module}.{part}"]) for part in parts)
        stored = self._find_stored(f"{module}.weight")
        if stored is None:
            raise self._corrupt(f"adapts the module {module!r}, which the base does not have")
        # A table with rows for added tokens is saved whole, and adapted too.
        whole = (
            self.file.get_slice(saved[stored]) if stored in saved else self._base[stored].get_slice(stored)
        )
        shape, rank = tuple(whole.get_shape()), self._adapter.rank_of(module)
        ends = shape[::-1] if is_table else shape
        expected = [(rank, *ends[1:]), (*ends[:1], rank)]
        found = [tuple(low.get_shape()), tuple(high.get_shape())]
        if len(shape) != 2 or found != expected:
            raise self._corrupt(
                f"has matrices of the shapes {found[0]} and {found[1]} for the module {module!r}, whose "
                f"weight in the base has the shape {shape}; {ADAPTER_CONFIG} gives the rank {rank}"
            )
        return _Product(stored, low, high, self._adapter.scaling_of(module), is_table)

    def _find_saved(self, name: str) -> str:
        """Return the name in the base of a whole tensor; its own name if the adapter adds its module."""
        plain = name.replace(".base_layer.", ".")
        stored = self._find_stored(plain)
        if stored is not None:
            return stored
        if set(self._adapter.saved).isdisjoint(plain.split(".")):
            raise self._corrupt(f"has the tensor {name!r}, which the base does not have")
        self.added.append(plain)
        return plain

    def _find_stored(self, name: str) -> str | None:
        """Return the tensor of the base; one of the two names may begin with the name of the encoder."""
        candidates = [name] if name in self._base else self._ends.get(name, [])
        if not candidates:
            rest = name.partition(".")[2]
            candidates = [rest] if rest in self._base else []
        if len(candidates) > 1:
            raise self._corrupt(f"adapts {name!r}, which the base has more than once")
        return candidates[0] if candidates else None

    def _corrupt(self, what: str) -> CorruptModel:
        return CorruptModel(f"{self._adapter.weights_file} {what}.")
