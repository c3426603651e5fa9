"""Reads `modules.json` and `config_sentence_transformers.json`: modules, stages, settings.

Each entry of `modules.json` names a class and the folder of its settings. Releases moved the classes but kept
their names, so only the last part of a class path is used.

Source of the rules: sentence-transformers 6.2, `base/model.py` and the modules themselves.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from vecmill.architectures.registry import find_architecture, name_architecture
from vecmill.directory_layouts.transformer_files import find_module_weights, join
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import (
    check_whole_number,
    read_flag,
    read_mapping,
    read_size,
    read_text,
    read_texts,
)
from vecmill.models.description import ModelDescription
from vecmill.models.directory import read_json, read_object, require_object
from vecmill.models.encoder_config import EncoderConfig
from vecmill.models.heads import Similarity
from vecmill.models.stages import (
    Dense,
    DenseActivation,
    LayerNorm,
    Normalize,
    Pooling,
    PoolingMode,
    Stage,
    Truncate,
    WeightedLayers,
)
from vecmill.values.messages import not_supported, show, show_name

MODULES_FILE = "modules.json"
# The modules of a model, or of one of its routes. Each has a folder with files to read.
MOST_MODULES = 64

# PyLate has its own class for the Dense module of multi-vector models.
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
    """An entry of `modules.json`: the name of the class, and the folder relative to the model."""

    kind: str
    folder: str


def read_modules(directory: Path) -> tuple[Module, ...] | None:
    """Read the entries in order; `None` if there is no such file. `Dropout`, which has no effect, is omitted.

    Raises `CorruptModel` for an invalid file, `UnsupportedModel` for classes outside sentence-transformers.
    """
    entries = read_json(directory, MODULES_FILE)
    if entries is None:
        return None
    if not isinstance(entries, list) or not entries:
        raise CorruptModel(f"{directory / MODULES_FILE} must list at least one module.")
    refuse_many(directory / MODULES_FILE, len(entries))
    modules = []
    for entry in entries:
        kind, path = (entry.get(key) if isinstance(entry, dict) else None for key in ("type", "path"))
        modules.append(read_module(directory, MODULES_FILE, kind, path))
    return without_dropout(modules)


def refuse_many(path: Path, modules: int) -> None:
    """Raise `CorruptModel` if the file `path` names more modules than a model may have."""
    if modules > MOST_MODULES:
        raise CorruptModel(f"{path} names {modules} modules; a model has at most {MOST_MODULES}.")


def without_dropout(modules: Iterable[Module]) -> tuple[Module, ...]:
    """Return the modules that have an effect when a model is used."""
    return tuple(module for module in modules if module.kind != "Dropout")


def read_module(directory: Path, file: str, kind: object, path: object) -> Module:
    """Return the module of the class path `kind` in the folder `path`, which `file` names.

    Raises `CorruptModel` unless both are strings, `UnsupportedModel` for classes outside
    sentence-transformers.
    """
    if not isinstance(kind, str) or not isinstance(path, str):
        raise CorruptModel(f"{directory / file}: each module needs a type and a path.")
    if kind in _RENAMED:
        return Module(_RENAMED[kind], path)
    if _is_replaced(kind, directory, path):
        return Module("Transformer", path)
    if not kind.startswith("sentence_transformers."):
        raise UnsupportedModel(f"{directory / file} names {show(kind)}: the model's own code is never run.")
    return Module(kind.rpartition(".")[2], path)


def _is_replaced(kind: str, directory: Path, path: str) -> bool:
    """Return whether `kind` is a class that came with the code of an architecture which has a graph."""
    config = read_object(directory, join(path, "config.json"))
    found = None if config is None else find_architecture(name_architecture(config))
    return found is not None and kind in found.own_modules


@dataclass(slots=True)
class StageReader:
    """A reader of the modules after the encoder. Tracks the kind and width of the embeddings.

    `width` is the number of dimensions at this point, and `width_by` names the settings that say so. `pooled`
    tells text embeddings from token embeddings. `dense_input` is the default input of Dense modules.
    `last_output`, if set, is the output of the last module instead of an embedding.
    """

    directory: Path
    width: int
    pooled: bool = False
    dense_input: str = _TEXT
    last_output: str | None = None
    width_by: str = "hidden_size"

    @classmethod
    def after(cls, directory: Path, encoder: EncoderConfig, **options: Any) -> Self:
        """Return a reader of the modules after an encoder."""
        size = encoder.aliases.get("hidden_size", "hidden_size")
        return cls(directory, encoder.output_size, width_by=size, **options)

    def read(self, modules: Sequence[Module]) -> tuple[Stage, ...]:
        """Read the stages. Raises `UnsupportedModel` for other modules, `CorruptModel` for wrong sizes."""
        if self.last_output is None:
            return tuple(map(self._read, modules))
        return (*map(self._read, modules[:-1]), self._read_dense(modules[-1], self.last_output))

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
            f"{self.directory / MODULES_FILE}: module {module.kind} is not supported in this position; "
            "supported after the encoder are Pooling, Dense, LayerNorm and Normalize."
        )

    def _read_pooling(self, module: Module) -> Pooling:
        name = join(module.folder, "config.json")
        config = require_object(self.directory, name)
        key = "embedding_dimension" if "embedding_dimension" in config else "word_embedding_dimension"
        self._check_width(name, key, read_size(config, key, self.width, file=self.directory / name))
        if self.pooled:
            raise UnsupportedModel(f"{self.directory / MODULES_FILE}: only one Pooling module is supported.")
        modes = self._pooling_modes(name, config)
        self.pooled = True
        self.width *= len(modes)
        flags = ["pooling_mode"] if config.get("pooling_mode") else filter(config.get, _POOLING_FLAGS)
        asked = " and ".join(flags) if len(modes) > 1 else f"{self.width_by} and one pooling_mode"
        self.width_by = f"{asked} of {name}"
        return Pooling(modes, include_prompt=self._read_flag(name, config, "include_prompt", default=True))

    def _pooling_modes(self, name: str, config: dict[str, Any]) -> tuple[PoolingMode, ...]:
        mode, path = config.get("pooling_mode"), self.directory / name
        flags = {flag: self._read_flag(name, config, flag, default=False) for flag in _POOLING_FLAGS}
        if mode is None:
            mode = [kind for flag, kind in _POOLING_FLAGS.items() if flags[flag]] or ["mean"]
        modes = read_texts(
            {"pooling_mode": [mode] if isinstance(mode, str) else mode}, "pooling_mode", file=path
        )
        if not modes or not set(modes) <= set(PoolingMode) or len(set(modes)) < len(modes):
            raise UnsupportedModel(
                f"{path}: pooling_mode: pooling {show_name(' + '.join(modes)) or 'nothing'} is not "
                f"supported; supported: {', '.join(PoolingMode)}, each once."
            )
        return tuple(map(PoolingMode, modes))

    def _read_dense(self, module: Module, output: str | None = None) -> Dense:
        """Read a `Dense` module, whose output is an embedding or, at the end, `output`."""
        name = join(module.folder, "config.json")
        config = require_object(self.directory, name)
        path = self.directory / name
        reads = read_text(config, "module_input_name", self.dense_input, file=path)
        writes = read_text(config, "module_output_name", file=path)
        if output is not None:
            if writes != output:
                what = f"{path}: in the last module, module_output_name"
                raise UnsupportedModel(not_supported(what, writes, (output,)))
            writes = None
        self._check_flow(name, reads, writes)
        inputs, outputs = (self._read_width(name, config, key) for key in ("in_features", "out_features"))
        self._check_width(name, "in_features", inputs)
        self.width, self.width_by = outputs, f"out_features of {name}"
        file = find_module_weights(self.directory, module.folder)
        return Dense(
            file,
            inputs,
            outputs,
            bias=self._read_flag(name, config, "bias", default=True),
            activation=self._read_activation(name, config),
            residual=self._read_flag(name, config, "use_residual", default=False),
        )

    def _read_activation(self, name: str, config: dict[str, Any]) -> DenseActivation:
        default, file = "torch.nn.modules.activation.Tanh", self.directory / name
        value = read_text(config, "activation_function", default, file=file) or default
        package, _, kind = value.rpartition(".")
        if kind not in set(DenseActivation) or not package.startswith("torch."):
            supported = [f"torch's {activation}" for activation in DenseActivation]
            raise UnsupportedModel(not_supported(f"{file}: activation_function", value, supported))
        return DenseActivation(kind)

    def _read_layer_norm(self, module: Module) -> LayerNorm:
        name = join(module.folder, "config.json")
        config = require_object(self.directory, name)
        self._check_flow(name, _TEXT, None)
        width = self._read_width(name, config, "dimension")
        self._check_width(name, "dimension", width)
        file = find_module_weights(self.directory, module.folder)
        return LayerNorm(file, width)

    def read_layers(self, module: Module, layers: int) -> WeightedLayers:
        """Read a `WeightedLayerPooling` after an encoder of so many `layers`.

        Raises `CorruptModel` if it does not have a weight for each layer from `layer_start` on.
        """
        name = join(module.folder, "config.json")
        config, path = require_object(self.directory, name), self.directory / name
        key = "embedding_dimension" if "embedding_dimension" in config else "word_embedding_dimension"
        self._check_width(name, key, self._read_width(name, config, key))
        first = read_size(config, "layer_start", 4, least=0, file=path)
        said = read_size(config, "num_hidden_layers", 12, file=path)
        if said != layers or first > layers:
            raise CorruptModel(
                f"{path}: num_hidden_layers {said} and layer_start {first} do not fit the encoder, which has "
                f"{layers} layers."
            )
        return WeightedLayers(find_module_weights(self.directory, module.folder), first, layers + 1 - first)

    def _read_normalize(self, module: Module) -> Normalize:
        name = join(module.folder, "config.json")
        # Older releases wrote no config.json. The config.json in the model's own folder is the encoder's.
        config = (read_object(self.directory, name) if module.folder else None) or {}
        path = self.directory / name
        reads = read_text(config, "module_input_name", _TEXT, file=path)
        self._check_flow(name, reads, read_text(config, "module_output_name", file=path))
        return Normalize()

    def _check_flow(self, name: str, reads: str | None, writes: str | None) -> None:
        """Raise `UnsupportedModel` unless the module reads and writes the embeddings at this point."""
        expected = _TEXT if self.pooled else _TOKENS
        if reads != expected or writes not in (None, expected):
            raise UnsupportedModel(
                f"{self.directory / MODULES_FILE}: the module of {name} reads {show(reads)} "
                f"(module_input_name) and writes {show(writes or reads)} (module_output_name), which is not "
                f"supported {'after' if self.pooled else 'before'} pooling."
            )

    def _check_width(self, name: str, key: str, width: int) -> None:
        if width != self.width:
            raise CorruptModel(
                f"{self.directory / name}: by {key} the module reads {width} dimensions, but its input has "
                f"{self.width}, by {self.width_by}."
            )

    def _read_flag(self, name: str, config: dict[str, Any], key: str, *, default: bool) -> bool:
        return read_flag(config, key, default=default, file=self.directory / name)

    def _read_width(self, name: str, config: dict[str, Any], key: str) -> int:
        return check_whole_number(config.get(key), f"{self.directory / name}: {key}")


def name_kinds(modules: Iterable[Module]) -> str:
    """Return the classes in order, for error messages."""
    return ", ".join(module.kind for module in modules) or "no modules"


# Prompts that all models but rerankers have in sentence-transformers, by default empty.
_DEFAULT_PROMPTS = ("query", "document")


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The settings of the file, empty if it is missing. `values` is its whole content."""

    FILE: ClassVar[str] = "config_sentence_transformers.json"

    path: Path
    values: Mapping[str, Any]
    prompts: Mapping[str, str]
    default_prompt_name: str | None

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Read the file. Raises `CorruptModel` for invalid prompts."""
        values = read_object(directory, cls.FILE) or {}
        path = directory / cls.FILE
        prompts = _read_prompts(path, values)
        default = _read_default(path, values, prompts)
        return cls(path, values, prompts, default)

    @property
    def model_type(self) -> str:
        """The class of sentence-transformers, by default `SentenceTransformer`."""
        return read_text(self.values, "model_type", file=self.path) or "SentenceTransformer"

    def add_prompts(self, description: ModelDescription) -> ModelDescription:
        """Return `description` with the prompts, which replace those of `config.json` of the same names."""
        prompts = {**description.prompts, **self.prompts}
        return replace(description, prompts=prompts, default_prompt_name=self.default_prompt_name)

    def add_similarity(self, description: ModelDescription) -> ModelDescription:
        """Return `description` with the similarity measure of its embeddings, by default the cosine."""
        name = read_text(self.values, "similarity_fn_name", file=self.path)
        # Other names belong to other kinds of models. sentence-transformers ignores them too.
        similarity = Similarity(name) if name is not None and name in tuple(Similarity) else Similarity.COSINE
        return replace(description, similarity=similarity)

    def truncate(self, description: ModelDescription) -> ModelDescription:
        """Return `description` truncated to `truncate_dim` dimensions, if set. Raises `CorruptModel`."""
        value = self.values.get("truncate_dim")
        dim = description.dim if value is None else check_whole_number(value, f"{self.path}: truncate_dim")
        if dim >= description.dim:
            return description
        return replace(description, stages=(*description.stages, Truncate(dim)), dim=dim)


def _read_prompts(path: Path, values: Mapping[str, Any]) -> dict[str, str]:
    prompts = read_mapping(values, "prompts", file=path)
    if not all(isinstance(text, str | None) for text in prompts.values()):
        raise CorruptModel(f"{path}: prompts must be an object of strings.")
    return {key: read_text(prompts, key, "", file=f"{path}: prompts") or "" for key in prompts}


def _read_default(path: Path, values: Mapping[str, Any], prompts: Mapping[str, str]) -> str | None:
    name = values.get("default_prompt_name")
    if name is None or (isinstance(name, str) and name in prompts):
        return name
    if name in _DEFAULT_PROMPTS and values.get("model_type") != "CrossEncoder":
        return None  # an empty prompt
    raise CorruptModel(f"{path}: default_prompt_name {show(name)} is not one of its prompts.")
