"""Reads the folder of a transformers model in any layout: settings, tokenizer and weights.

    config.json                    the encoder: architecture and sizes
    sentence_bert_config.json      the longest input, lower-casing (sentence-transformers only)
    tokenizer_config.json          the longest input, if not in sentence_bert_config.json
    tokenizer.json or vocab.txt    the tokenizer
    model.safetensors              the weights, or several files listed in model.safetensors.index.json
    pytorch_model.bin              the weights without safetensors, or pytorch_model.bin.index.json

Source of the rules: sentence-transformers 6.2, `base/modules/transformer.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from vecmill.architectures.registry import (
    has_foreign_code,
    name_architecture,
    read_encoder,
    refuse_without_graph,
)
from vecmill.directory_layouts.adapter_base import (
    ModelFolder,
    find_transformer_base,
    holds_whole_model,
)
from vecmill.directory_layouts.transformer_files import (
    TOKENIZERS,
    check_length,
    find_tokenizer,
    find_weights,
    join,
    read_longest_input,
    read_tokenizer_config,
    refuse_quantized_weights,
    truncates_left,
)
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.adapters import ADAPTER_CONFIG, Adapter
from vecmill.models.config_fields import (
    MOST_TOKENS,
    read_flag,
    read_mapping,
    read_size,
    read_text,
    read_texts,
)
from vecmill.models.description import ModelDescription
from vecmill.models.directory import check_size, find_file, read_object, require_object
from vecmill.models.encoder_config import EncoderConfig
from vecmill.models.exported import find_exported_files, with_weights
from vecmill.models.location import ModelLocation
from vecmill.models.rope import scales_with_length
from vecmill.models.tokenizer_file import SPECIAL_TOKENS_MAP, TOKENIZER_CONFIG, read_token, tokenizer_limits
from vecmill.tokenization.building.classes import gives_token_types
from vecmill.tokenization.building.padding_side import find_class_side, read_json_side, read_padding_side
from vecmill.tokenization.building.token_changes import find_changes
from vecmill.values.messages import not_supported, show, show_name
from vecmill.values.task import Task

_SETTINGS_FILES = tuple(
    f"sentence_{architecture}_config.json"
    for architecture in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)

# Keyword arguments that sentence-transformers passes on, and that change no fp32 output.
_HARMLESS_ARGUMENTS = {
    "model": frozenset(
        {
            "add_pooling_layer",
            "attn_implementation",
            "device_map",
            "dtype",
            "low_cpu_mem_usage",
            "safe_serialization",  # which file the published code of NomicBERT reads
            "torch_dtype",
            "unpad_inputs",
            "use_memory_efficient_attention",
            "use_safetensors",
        }
    ),
    "processor": frozenset({"model_max_length", "padding_side", "use_fast"}),
    "config": frozenset({"use_memory_efficient_attention", "unpad_inputs"}),
}
_OLD_ARGUMENT_KEYS = {"model": "model_args", "processor": "tokenizer_args", "config": "config_args"}

# The model output that each task of sentence-transformers reads, if the settings name it.
_OUTPUTS = {
    "feature-extraction": "last_hidden_state",
    "fill-mask": "logits",
    "sequence-classification": "logits",
    "text-generation": "logits",
}

_TEMPLATES = ("chat_template.jinja", "chat_template.json")
_TOKENIZER_SETTINGS = (TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP, *_TEMPLATES)

# A limit of at least this size means "no limit", for which transformers writes 1e30.
_UNLIMITED_TOKENS = 10**9


@dataclass(frozen=True, slots=True)
class TransformerFolder:
    """The settings of a folder. `settings` and `tokenizer_config` are empty if the file is missing.

    `base` is the folder of config.json and weights: that of the base if there is an `adapter`, else this one.
    `tokenizer` is the folder of the tokenizer's files.
    """

    directory: Path
    folder: str
    config: Mapping[str, Any]
    encoder: EncoderConfig
    settings: Mapping[str, Any]
    settings_file: str
    tokenizer_config: Mapping[str, Any]
    adapter: Adapter | None
    base: ModelFolder
    tokenizer: ModelFolder

    @classmethod
    def read(
        cls,
        location: ModelLocation,
        folder: str = "",
        *,
        is_module: bool = True,
        reads_chat_template: bool = False,
    ) -> Self:
        """Read the settings. Those of sentence-transformers are read only if the folder is a module.

        With `reads_chat_template` the caller supports a chat template and its arguments. Raises
        `CorruptModel` or `UnsupportedModel`, which name the file.
        """
        directory = location.directory
        adapter, base = _find_base(location, folder)
        config = require_object(base.directory, join(base.folder, "config.json"))
        if adapter is not None:
            config = adapter.change_config(config)
        config_path = base.directory / base.folder / "config.json"
        tokenizer = _find_tokenizer_folder(location, folder)
        refuse_without_graph(config, str(config_path))
        has_code = has_foreign_code(config)
        if has_code and not location.trusts_code:
            raise _no_code(config_path, config)
        refuse_quantized_weights(config_path, config)
        read = cls(
            directory,
            folder,
            config,
            read_encoder(config, str(config_path), runs_code=has_code),
            *(_read_settings(directory, folder) if is_module else ({}, _SETTINGS_FILES[0])),
            read_tokenizer_config(tokenizer.directory, tokenizer.folder),
            adapter,
            base,
            tokenizer,
        )
        read._check_settings(reads_chat_template)
        return read

    def path(self, name: str) -> Path:
        """Return the path of the file `name`, for error messages."""
        if name == "config.json":
            return self.base.directory / self.base.folder / name
        if name in (*TOKENIZERS, *_TOKENIZER_SETTINGS):
            return self.tokenizer.directory / self.tokenizer.folder / name
        return self.directory / self.folder / name

    @property
    def settings_path(self) -> Path:
        """The path of the settings of sentence-transformers."""
        return self.path(self.settings_file)

    @property
    def task(self) -> str:
        """The task of sentence-transformers, which determines the head, if any."""
        default = "feature-extraction"
        return read_text(self.settings, "transformer_task", default, file=self.settings_path) or default

    @property
    def class_name(self) -> str:
        """The saved class of transformers, the first of `architectures`; empty if there is none."""
        names = read_texts(self.config, "architectures")
        return names[0] if names else ""

    def describe(self, location: ModelLocation) -> ModelDescription:
        """Return the description of an embedding model without stages, which layouts complete."""
        adapters = self._find_task_adapters()
        described = ModelDescription(
            name=location.name,
            directory=location.directory,
            task=Task.EMBED,
            architecture=str(name_architecture(self.config)),
            encoder=self.encoder,
            dim=self.encoder.output_size,
            max_tokens=self._longest_input(),
            vocab_size=self.encoder.vocab_size,
            stages=(),
            lowercase=read_flag(self.settings, "do_lower_case", default=False, file=self.settings_path),
            truncate_left=truncates_left(self.tokenizer_config),
            prompts=dict(self.encoder.prompts),
            default_prompt_name=None,
            config=self.config,
            tokenizer_file=self._find_tokenizer(),
            weights_files=(
                *self._find_weights(location.graph),
                *(adapter.weights_file for adapter in adapters.values()),
            ),
            weights_sha256=location.weights_sha256,
            tokenizer_config=self.tokenizer_config,
            adapter=self.adapter,
            gives_token_types=gives_token_types(self.tokenizer_config, self.config),
            task_adapters=adapters,
        )
        return replace(described, token_changes=find_changes(described))

    def _find_task_adapters(self) -> dict[str, Adapter]:
        """Read the adapters of the encoder's tasks. Raises `CorruptModel` or `UnsupportedModel`."""
        found = {}
        for task, folder in self.encoder.adapter_folders.items():
            place = join(self.base.folder, folder)
            adapter = Adapter.find(self.base.directory, place)
            path = self.base.directory / place / ADAPTER_CONFIG
            if adapter is None:
                raise CorruptModel(f"{path} is missing; task_names in config.json has its task.")
            if adapter.saved or adapter.class_end is not None or self.adapter is not None:
                raise UnsupportedModel(
                    f"{path}: an adapter of a task with modules_to_save, with a head, or beside another "
                    "adapter of the model is not supported."
                )
            found[task] = adapter
        return found

    def _find_tokenizer(self) -> Path:
        """Return the tokenizer's file, whose size is checked because all of it is hashed and read."""
        file = find_tokenizer(self.tokenizer.directory, self.tokenizer.folder)
        check_size(file, tokenizer_limits(self.encoder.vocab_size).max_bytes)
        return file

    def _find_weights(self, graph: str | None) -> tuple[Path, ...]:
        """Return the files of the weights, or of an exported graph if it is named or there are no others."""
        if graph is not None:
            return with_weights(self.directory, graph)
        base = self.base
        exported = find_exported_files(base.directory, base.folder, self.encoder.exported_names)
        return exported or find_weights(base.directory, base.folder)

    def expect_task(self, *tasks: str) -> None:
        """Raise `UnsupportedModel` unless sentence-transformers would load a head of `tasks`."""
        if self.task not in tasks:
            what = f"{self.settings_path}: in this kind of model, transformer_task"
            raise UnsupportedModel(not_supported(what, self.task, tasks))

    def refuse_chat_template(self) -> None:
        """Raise `UnsupportedModel` for a chat template: sentence-transformers applies it to every text."""
        for name in _TEMPLATES:
            if find_file(self.tokenizer.directory, join(self.tokenizer.folder, name)) is not None:
                raise _no_template(self.path(name))
        if self.tokenizer_config.get("chat_template"):
            raise _no_template(self.path("tokenizer_config.json"))

    def special_token(self, name: str) -> str | None:
        """Return the token of `name`, such as "mask_token", or `None`."""
        token = read_token(self.tokenizer_config, name, TOKENIZER_CONFIG)
        if token is not None:
            return token
        place = self.tokenizer
        others = read_object(place.directory, join(place.folder, SPECIAL_TOKENS_MAP)) or {}
        return read_token(others, name, SPECIAL_TOKENS_MAP)

    def _check_settings(self, reads_chat_template: bool) -> None:
        path = self.settings_path
        for kind, harmless in _HARMLESS_ARGUMENTS.items():
            for key in (_OLD_ARGUMENT_KEYS[kind], f"{kind}_kwargs"):
                values = read_mapping(self.settings, key, file=path)
                for name in set(values) - harmless - {"trust_remote_code"}:
                    raise UnsupportedModel(f"{path}: {key}.{show_name(name)} is not supported.")
        for key in ("tokenizer_name_or_path", *(() if reads_chat_template else ("processing_kwargs",))):
            if self.settings.get(key):
                raise UnsupportedModel(f"{path}: {key} is not supported.")
        self._check_modalities(path, reads_chat_template)

    def _check_modalities(self, path: Path, reads_chat_template: bool) -> None:
        if self.task not in _OUTPUTS:
            raise UnsupportedModel(not_supported(f"{path}: transformer_task", self.task, _OUTPUTS))
        modalities = read_mapping(self.settings, "modality_config", file=path)
        if "message" in modalities and not reads_chat_template:
            raise _no_template(path)
        if modalities == self.encoder.features:
            return
        expected = {"method": "forward", "method_output_name": _OUTPUTS[self.task]}
        formats = (expected, *({**expected, "format": name} for name in ("auto", "flat", "structured")))
        allowed = {"text": (expected,), "message": formats}
        if self.encoder.reads_more:
            modalities = {name: entry for name, entry in modalities.items() if name in allowed}
        if any(entry not in allowed.get(name, ()) for name, entry in modalities.items()):
            supported = (f"text with {expected}",)
            raise UnsupportedModel(not_supported(f"{path}: modality_config", modalities, supported))

    @property
    def processor_arguments(self) -> Mapping[str, Any]:
        """The arguments that sentence-transformers gives the tokenizer, which take precedence."""
        file = self.settings_path
        arguments = read_mapping(self.settings, "processor_kwargs", file=file)
        return arguments or read_mapping(self.settings, "tokenizer_args", file=file)

    @property
    def pads_left(self) -> bool:
        """Whether the tokenizer pads on the left, where the copies of an expansion then stand too."""
        place = self.tokenizer
        limits = tokenizer_limits(self.encoder.vocab_size)
        side = (
            read_padding_side(self.processor_arguments, self.settings_path)
            or read_padding_side(self.tokenizer_config, TOKENIZER_CONFIG)
            or read_json_side(place.directory, join(place.folder, "tokenizer.json"), limits)
            or find_class_side(self.tokenizer_config, self.config)
        )
        return side == "left"

    @property
    def bound(self) -> int | None:
        """The longest input that the encoder can read, `None` if any length has positions."""
        ends = self.encoder.limits_input or scales_with_length(self.config)
        return self.encoder.max_input_tokens if ends else None

    def _longest_input(self) -> int:
        """Return the longest input in tokens: the configured limit within `bound`, or the encoder's own."""
        arguments = self.processor_arguments
        bound = self.encoder.max_input_tokens
        for source, value in (
            (f"{self.settings_file}: model_max_length", arguments.get("model_max_length")),
            (f"{self.settings_file}: max_seq_length", self.settings.get("max_seq_length")),
        ):
            if value is not None:
                stated = check_length(self.path(""), source, value)
                return _smallest(stated, bound if stated >= _UNLIMITED_TOKENS else self.bound)
        value = read_longest_input(self.path(""), self.tokenizer_config)
        # Some models with relative positions write -1.
        positions = read_size(self.config, "max_position_embeddings", -1, least=-1, most=MOST_TOKENS)
        limits = [limit for limit in (value, positions, bound) if limit is not None and limit > 0]
        longest = min(limits, default=_UNLIMITED_TOKENS)
        if longest >= _UNLIMITED_TOKENS:
            raise UnsupportedModel(
                f"{self.path('')}: neither max_seq_length nor model_max_length limits the length of texts."
            )
        return longest


def _no_code(path: Path, config: Mapping[str, Any]) -> UnsupportedModel:
    return UnsupportedModel(
        f"{path}: auto_map names {show(config['auto_map'])}: the model needs its own code, which is "
        "not run by default. If you have read that code and trust it, allow it with --trust-remote-code; "
        "the torch engine then runs it."
    )


def _find_base(location: ModelLocation, folder: str) -> tuple[Adapter | None, ModelFolder]:
    """Return the adapter of a folder, if any, and the folder of the weights that it changes."""
    directory = location.directory
    if location.adapter is not None:
        return location.adapter, ModelFolder(directory, folder)
    adapter = Adapter.find(directory, folder)
    if adapter is None or holds_whole_model(directory, folder):
        return adapter, ModelFolder(directory, folder)
    return adapter, find_transformer_base(adapter)


def _find_tokenizer_folder(location: ModelLocation, folder: str) -> ModelFolder:
    """Return the folder of the tokenizer: that of an adapter if it has one, as in sentence-transformers."""
    if location.adapter is not None:
        own = location.adapter.config_file.parent
        if find_file(own, TOKENIZER_CONFIG) and any(find_file(own, name) for name in TOKENIZERS):
            return ModelFolder(own, "")
    return ModelFolder(location.directory, folder)


def _read_settings(directory: Path, folder: str) -> tuple[Mapping[str, Any], str]:
    """Return the settings of sentence-transformers, and the name of their file."""
    for name in _SETTINGS_FILES:
        settings = read_object(directory, join(folder, name))
        if settings:
            return settings, name
    return {}, _SETTINGS_FILES[0]


def _smallest(value: int, bound: int | None) -> int:
    return value if bound is None else min(value, bound)


def _no_template(path: Path) -> UnsupportedModel:
    return UnsupportedModel(
        f"{path}: a chat template applies to every text, which is not supported. Without the template the "
        "model's output would be wrong."
    )
