"""`modules.json` of sentence-transformers: which modules there are, and the stages that they make.

Each entry names a class and the folder of its settings. Releases moved the classes about and kept
their names, so the last part of a class path is what counts.

Source of the rules: sentence-transformers 6.2, `base/model.py` and the modules themselves.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.directory import read_json, read_object, require_object
from vecmill.models.layouts.transformer_folder import find_module_weights, join
from vecmill.models.stages import (
    Dense,
    DenseActivation,
    LayerNorm,
    Normalize,
    Pooling,
    PoolingMode,
    Stage,
)

MODULES_FILE = "modules.json"

# PyLate kept the Dense of its multi-vector models in a package of its own.
_RENAMED = {"pylate.models.Dense.Dense": "Dense"}

_POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}

_TOKENS, _TEXT = "token_embeddings", "sentence_embedding"


@dataclass(frozen=True, slots=True)
class Module:
    """One entry: the name of the class, and the folder relative to the model."""

    kind: str
    folder: str


def read_modules(directory: Path) -> tuple[Module, ...] | None:
    """The entries in order; `None` if there is no such file. `Dropout` is left out: it does nothing here.

    Raises `CorruptModel` for what is no list of modules, `UnsupportedModel` for classes of others.
    """
    entries = read_json(directory, MODULES_FILE)
    if entries is None:
        return None
    if not isinstance(entries, list) or not entries:
        raise CorruptModel(f"{directory / MODULES_FILE} must list at least one module.")
    modules = (_read_module(entry, directory) for entry in entries)
    return tuple(module for module in modules if module.kind != "Dropout")


def _read_module(entry: object, directory: Path) -> Module:
    kind = entry.get("type") if isinstance(entry, dict) else None
    path = entry.get("path") if isinstance(entry, dict) else None
    if not isinstance(kind, str) or not isinstance(path, str):
        raise CorruptModel(f"{directory / MODULES_FILE}: each module needs a type and a path.")
    if kind in _RENAMED:
        return Module(_RENAMED[kind], path)
    if not kind.startswith("sentence_transformers."):
        raise UnsupportedModel(
            f"{directory / MODULES_FILE} names {kind}: the model needs code that comes with it, "
            "which is never run."
        )
    return Module(kind.rpartition(".")[2], path)


@dataclass(slots=True)
class StageReader:
    """Reads the modules after the encoder, one after the other, and keeps track of what flows.

    `width` is the columns of a row at this point, `pooled` whether rows are those of texts. Dense modules
    that do not say what they read are `dense_reads`. Where `last_writes` is set, the last module writes that
    instead of a row.
    """

    directory: Path
    width: int
    pooled: bool = False
    dense_reads: str = _TEXT
    last_writes: str | None = None

    def read(self, modules: Sequence[Module]) -> tuple[Stage, ...]:
        """The stages. Raises `UnsupportedModel` for a module that is not done, `CorruptModel` for misfits."""
        if self.last_writes is None:
            return tuple(map(self._read, modules))
        return (*map(self._read, modules[:-1]), self._read_dense(modules[-1], self.last_writes))

    def _read(self, module: Module) -> Stage:
        match module.kind:
            case "Pooling":
                return self._read_pooling(module)
            case "Dense":
                return self._read_dense(module)
            case "LayerNorm":
                return self._read_layer_norm(module)
            case "Normalize":
                return self._read_normalize(module)
        raise UnsupportedModel(
            f"{self.directory / MODULES_FILE}: module {module.kind} is not supported in this place; "
            "supported "
            "after the encoder are Pooling, Dense, LayerNorm and Normalize."
        )

    def _read_pooling(self, module: Module) -> Pooling:
        name = join(module.folder, "config.json")
        config = require_object(self.directory, name)
        width = config.get("embedding_dimension", config.get("word_embedding_dimension", self.width))
        self._check_width(name, width)
        if self.pooled:
            raise UnsupportedModel(f"{self.directory / MODULES_FILE}: only one Pooling module is supported.")
        modes = self._pooling_modes(name, config)
        self.pooled = True
        self.width *= len(modes)
        return Pooling(modes, include_prompt=bool(config.get("include_prompt", True)))

    def _pooling_modes(self, name: str, config: dict[str, Any]) -> tuple[PoolingMode, ...]:
        mode = config.get("pooling_mode")
        if mode is None:
            mode = [kind for flag, kind in _POOLING_FLAGS.items() if config.get(flag)] or ["mean"]
        modes = [mode] if isinstance(mode, str) else list(mode)
        if not modes or not set(modes) <= set(PoolingMode):
            raise UnsupportedModel(
                f"{self.directory / name}: pooling {' + '.join(map(str, modes)) or 'nothing'} is not "
                "supported; "
                f"supported: {', '.join(PoolingMode)}."
            )
        return tuple(map(PoolingMode, modes))

    def _read_dense(self, module: Module, output: str | None = None) -> Dense:
        """A `Dense` that goes on with what flows, or at the end writes `output`."""
        name = join(module.folder, "config.json")
        config = require_object(self.directory, name)
        reads = str(config.get("module_input_name", self.dense_reads))
        writes = config.get("module_output_name")
        if output is not None:
            if writes != output:
                raise UnsupportedModel(
                    f"{self.directory / name}: the last module writes {writes!r}; supported is {output!r}."
                )
            writes = None
        self._check_flow(name, reads, writes)
        inputs, outputs = (
            read_width(self.directory / name, config, key) for key in ("in_features", "out_features")
        )
        self._check_width(name, inputs)
        self.width = outputs
        file = find_module_weights(self.directory, module.folder)
        return Dense(
            file,
            inputs,
            outputs,
            bias=bool(config.get("bias", True)),
            activation=self._read_activation(name, config),
            residual=bool(config.get("use_residual", False)),
        )

    def _read_activation(self, name: str, config: dict[str, Any]) -> DenseActivation:
        written = config.get("activation_function", "torch.nn.modules.activation.Tanh")
        package, _, kind = str(written).rpartition(".")
        if kind not in set(DenseActivation) or not package.startswith("torch."):
            raise UnsupportedModel(
                f"{self.directory / name}: activation_function {written!r} is not supported; supported are "
                f"torch's {', '.join(DenseActivation)}."
            )
        return DenseActivation(kind)

    def _read_layer_norm(self, module: Module) -> LayerNorm:
        name = join(module.folder, "config.json")
        config = require_object(self.directory, name)
        self._check_flow(name, _TEXT, None)
        width = read_width(self.directory / name, config, "dimension")
        self._check_width(name, width)
        file = find_module_weights(self.directory, module.folder)
        return LayerNorm(file, width)

    def _read_normalize(self, module: Module) -> Normalize:
        name = join(module.folder, "config.json")
        # Older releases wrote no file, or in the model's own folder let it be the encoder's.
        config = (read_object(self.directory, name) if module.folder else None) or {}
        self._check_flow(name, str(config.get("module_input_name", _TEXT)), config.get("module_output_name"))
        return Normalize()

    def _check_flow(self, name: str, reads: str, writes: object) -> None:
        """Refuse a module that reads or writes something else than what flows here."""
        flows = _TEXT if self.pooled else _TOKENS
        if reads != flows or writes not in (None, flows):
            raise UnsupportedModel(
                f"{self.directory / MODULES_FILE}: the module of {name} goes from {reads!r} to "
                f"{writes or reads!r}, which is not supported {'after' if self.pooled else 'before'} pooling."
            )

    def _check_width(self, name: str, width: object) -> None:
        if width != self.width:
            raise CorruptModel(
                f"{self.directory / name} takes rows of {width}, but what comes before it gives rows "
                f"of {self.width}."
            )


def read_width(where: Path, config: dict[str, Any], key: str) -> int:
    """A size of at least 1. Raises `CorruptModel`."""
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise CorruptModel(f"{where}: {key} must be a whole number of at least 1.")
    return value


def name_kinds(modules: Iterable[Module]) -> str:
    """The classes in order, for messages."""
    return ", ".join(module.kind for module in modules) or "no modules"
