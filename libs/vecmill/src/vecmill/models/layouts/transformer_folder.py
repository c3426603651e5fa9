"""The folder of a transformers model, wherever a layout keeps it: settings, tokenizer and weights.

    config.json                    the encoder: family and sizes
    sentence_bert_config.json      the longest input, lower-casing (sentence-transformers only)
    tokenizer_config.json          the longest input where the file above is silent
    tokenizer.json or vocab.txt    the tokenizer
    model.safetensors              the weights, or parts of them named by model.safetensors.index.json

Source of the rules: sentence-transformers 6.2, `base/modules/transformer.py`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, Self

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.conversion import VOCABULARY_FILES
from vecmill.models.description import ModelDescription, Task
from vecmill.models.directory import find_file, read_object, require_object
from vecmill.models.encoder import EncoderConfig, read_encoder
from vecmill.models.exported import find_exported_files, with_weights
from vecmill.models.location import ModelLocation

_SETTINGS_FILES = tuple(
    f"sentence_{family}_config.json"
    for family in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)

# Keyword arguments that the reference hands on when it loads a model, and that change no row in fp32.
_HARMLESS_ARGUMENTS = {
    "model": frozenset(
        {
            "add_pooling_layer",
            "attn_implementation",
            "device_map",
            "dtype",
            "low_cpu_mem_usage",
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

# What each of the reference's tasks takes from its model, if the settings say so at all.
_OUTPUTS = {
    "feature-extraction": "last_hidden_state",
    "fill-mask": "logits",
    "sequence-classification": "logits",
    "text-generation": "logits",
}

# Families that come with code of their own, which graphs rebuild instead of running it.
_REBUILT_FAMILIES = frozenset({"gte", "new", "nomic_bert"})

_TOKENIZERS = ("tokenizer.json", *VOCABULARY_FILES)
_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.bin")

# transformers writes 1e30 for "no limit"; nobody reads that much.
_UNLIMITED_TOKENS = 10**9


@dataclass(frozen=True, slots=True)
class TransformerFolder:
    """What a folder says. `settings` and `tokenizer_config` are empty where there is no such file."""

    directory: Path
    folder: str
    config: Mapping[str, Any]
    encoder: EncoderConfig
    settings: Mapping[str, Any]
    tokenizer_config: Mapping[str, Any]

    @classmethod
    def read(
        cls, location: ModelLocation, folder: str = "", *, is_module: bool = True, reads_chats: bool = False
    ) -> Self:
        """Read the settings. Those of sentence-transformers count only for one of its modules.

        With `reads_chats` the caller heeds a chat template, and what it is told. Raises `CorruptModel` or
        `UnsupportedModel`, and names the file.
        """
        directory = location.directory
        config = require_object(directory, join(folder, "config.json"))
        has_code = has_foreign_code(config)
        if has_code and not location.trusts_code:
            raise _no_code(directory / folder / "config.json", config)
        _refuse_changed_weights(directory, folder, config)
        tokenizer_config = read_object(directory, join(folder, "tokenizer_config.json")) or {}
        if has_foreign_code(tokenizer_config):
            raise UnsupportedModel(
                f"{directory / folder / 'tokenizer_config.json'}: auto_map names "
                f"{json.dumps(tokenizer_config['auto_map'])}: a tokenizer that is code is never run. Write a "
                "tokenizer.json, if the model has a tokenizer that can."
            )
        read = cls(
            directory,
            folder,
            MappingProxyType(config),
            read_encoder(config, str(directory / folder / "config.json"), runs_code=has_code),
            _read_settings(directory, folder) if is_module else MappingProxyType({}),
            MappingProxyType(tokenizer_config),
        )
        read._check_settings(reads_chats)
        return read

    def path(self, name: str) -> Path:
        """Where the file `name` would be, for messages."""
        return self.directory / self.folder / name

    @property
    def task(self) -> str:
        """The reference's task: which head, if any, comes with the encoder."""
        return str(self.settings.get("transformer_task", "feature-extraction"))

    @property
    def class_name(self) -> str:
        """The transformers class that was saved, the first of `architectures`; empty if none is named."""
        names = self.config.get("architectures")
        return str(names[0]) if isinstance(names, list) and names else ""

    def describe(self, location: ModelLocation) -> ModelDescription:
        """An embedding model without stages; layouts replace what is different."""
        return ModelDescription(
            name=location.name,
            directory=location.directory,
            task=Task.EMBED,
            architecture=str(self.config["model_type"]),
            encoder=self.encoder,
            dim=self.encoder.hidden_size,
            max_tokens=self._longest_input(),
            vocab_size=self.encoder.vocab_size,
            stages=(),
            lowercase=bool(self.settings.get("do_lower_case", False)),
            truncate_left=self.tokenizer_config.get("truncation_side") == "left",
            prompts=MappingProxyType({}),
            default_prompt_name=None,
            config=self.config,
            tokenizer_file=find_tokenizer(self.directory, self.folder),
            weights_files=self._find_weights(location.graph),
            weights_sha256=location.weights_sha256,
            tokenizer_config=self.tokenizer_config,
        )

    def _find_weights(self, graph: str | None) -> tuple[Path, ...]:
        """The files of the weights, or of the exported graph that is named or all that there is."""
        if graph is not None:
            return with_weights(self.directory, graph)
        return find_exported_files(self.directory, self.folder) or find_weights(self.directory, self.folder)

    def expect_task(self, *tasks: str) -> None:
        """Raise `UnsupportedModel` if the reference would load another head than those of `tasks`."""
        if self.task not in tasks:
            raise UnsupportedModel(
                f"{self.path('sentence_bert_config.json')}: transformer_task {self.task!r} is not "
                "supported in "
                f"this kind of model; {' or '.join(map(repr, tasks))} is."
            )

    def refuse_chat_template(self) -> None:
        """Raise `UnsupportedModel` for a chat template, which the reference would put around every text."""
        for name in ("chat_template.jinja", "chat_template.json"):
            if find_file(self.directory, join(self.folder, name)) is not None:
                raise _no_template(self.path(name))
        if self.tokenizer_config.get("chat_template"):
            raise _no_template(self.path("tokenizer_config.json"))

    def special_token(self, name: str) -> str | None:
        """The token that `name`, such as "mask_token", stands for, or `None`."""
        value = self.tokenizer_config.get(name)
        if value is None:
            others = read_object(self.directory, join(self.folder, "special_tokens_map.json")) or {}
            value = others.get(name)
        content = value.get("content") if isinstance(value, dict) else value
        return content if isinstance(content, str) else None

    def _check_settings(self, reads_chats: bool) -> None:
        where = self.path("sentence_bert_config.json")
        for kind, harmless in _HARMLESS_ARGUMENTS.items():
            for key in (_OLD_ARGUMENT_KEYS[kind], f"{kind}_kwargs"):
                values = self.settings.get(key) or {}
                for name in set(values) - harmless - {"trust_remote_code"}:
                    raise UnsupportedModel(f"{where}: {key}.{name} is not supported.")
        for key in ("tokenizer_name_or_path", *(() if reads_chats else ("processing_kwargs",))):
            if self.settings.get(key):
                raise UnsupportedModel(f"{where}: {key} is not supported.")
        self._check_modalities(where, reads_chats)

    def _check_modalities(self, where: Path, reads_chats: bool) -> None:
        if self.task not in _OUTPUTS:
            raise UnsupportedModel(
                f"{where}: transformer_task {self.task!r} is not supported; supported: {', '.join(_OUTPUTS)}."
            )
        modalities = self.settings.get("modality_config") or {}
        if "message" in modalities and not reads_chats:
            raise _no_template(where)
        expected = {"method": "forward", "method_output_name": _OUTPUTS[self.task]}
        formats = (expected, *({**expected, "format": name} for name in ("auto", "flat", "structured")))
        allowed = {"text": (expected,), "message": formats}
        if any(entry not in allowed.get(name, ()) for name, entry in modalities.items()):
            raise UnsupportedModel(
                f"{where}: modality_config is {modalities}; supported is text, by {expected}."
            )

    def _longest_input(self) -> int:
        """The longest input in tokens: what is written, and never more than the encoder can position."""
        arguments = self.settings.get("processor_kwargs") or self.settings.get("tokenizer_args") or {}
        bound = self.encoder.max_input_tokens
        for source, value in (
            ("sentence_bert_config.json: model_max_length", arguments.get("model_max_length")),
            ("sentence_bert_config.json: max_seq_length", self.settings.get("max_seq_length")),
        ):
            if value is not None:
                return _smallest(_check_length(self.path(""), source, value), bound)
        value = self.tokenizer_config.get("model_max_length")
        if value is not None:
            value = _check_length(self.path(""), "tokenizer_config.json: model_max_length", value)
        positions = self.config.get("max_position_embeddings")
        written = [limit for limit in (value, positions, bound) if isinstance(limit, int) and limit != -1]
        longest = min(written, default=_UNLIMITED_TOKENS)
        if longest >= _UNLIMITED_TOKENS:
            raise UnsupportedModel(
                f"{self.path('')}: neither max_seq_length nor model_max_length says how long texts may be."
            )
        return longest


def join(folder: str, name: str) -> str:
    """The path of `name` in `folder`, relative to the model."""
    return str(PurePosixPath(folder, name))


def has_foreign_code(config: Mapping[str, Any]) -> bool:
    """Whether `config` names code that comes with the model, and that no graph here rebuilds."""
    return bool(config.get("auto_map")) and str(config.get("model_type")) not in _REBUILT_FAMILIES


def _no_code(path: Path, config: Mapping[str, Any]) -> UnsupportedModel:
    return UnsupportedModel(
        f"{path}: auto_map names {json.dumps(config['auto_map'])}: the model needs code that comes with it, "
        "which is never run unasked. If you have read that code and trust it, say so with "
        "--trust-remote-code; the torch engine runs it then."
    )


def _refuse_changed_weights(directory: Path, folder: str, config: Mapping[str, Any]) -> None:
    """Raise `UnsupportedModel` if the weights are not those that are computed with."""
    if find_file(directory, join(folder, "adapter_config.json")) is not None:
        raise UnsupportedModel(
            f"{directory / folder / 'adapter_config.json'}: adapters are not supported. Merge it into "
            "the model, "
            "with `merge_and_unload` of the peft package, and save that."
        )
    if config.get("quantization_config"):
        raise UnsupportedModel(
            f"{directory / folder / 'config.json'}: quantization_config is not supported. Take the model's "
            "weights in float32, bfloat16 or float16."
        )


def find_tokenizer(directory: Path, folder: str) -> Path:
    """The file that a tokenizer can be made from. Raises `UnsupportedModel` or `CorruptModel`."""
    for name in _TOKENIZERS:
        path = find_file(directory, join(folder, name))
        if path is not None:
            return path
    where = directory / folder
    if any(where.glob("*.model")) or any(where.glob("*.tiktoken")):
        raise UnsupportedModel(
            f"{where} has a vocabulary that is not read here and no tokenizer.json. Write one with "
            "`transformers.AutoTokenizer.from_pretrained(directory).save_pretrained(directory)`."
        )
    raise CorruptModel(
        f"{where} has no tokenizer: neither {' nor '.join(_TOKENIZERS)} is there. Download the model again."
    )


def find_weights(directory: Path, folder: str) -> tuple[Path, ...]:
    """The safetensors files with the weights. Raises `UnsupportedModel` or `CorruptModel`."""
    path = find_file(directory, join(folder, "model.safetensors"))
    if path is not None:
        return (path,)
    index = read_object(directory, join(folder, "model.safetensors.index.json"))
    if index is not None:
        return _find_shards(directory, folder, index)
    for name in _PICKLES:
        if find_file(directory, join(folder, name)) is not None:
            raise UnsupportedModel(
                f"{directory / folder / name}: the weights are a pickle, which runs code when it is "
                "read, and "
                "is never read here. Save the model as safetensors, with any recent transformers."
            )
    raise CorruptModel(
        f"{directory / folder / 'model.safetensors'} is missing. Download the model again; if it is on a hub "
        "as an ONNX graph alone, with `vecmill pull --onnx`."
    )


def find_module_weights(directory: Path, folder: str) -> Path:
    """The one safetensors file of a module after the encoder. Raises as `find_weights`."""
    paths = find_weights(directory, folder)
    if len(paths) != 1:
        raise UnsupportedModel(
            f"{directory / folder}: weights of a module in several files are not supported."
        )
    return paths[0]


def _find_shards(directory: Path, folder: str, index: Mapping[str, Any]) -> tuple[Path, ...]:
    shards = index.get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise CorruptModel(
            f"{directory / folder / 'model.safetensors.index.json'}: weight_map must name the files "
            "of tensors."
        )
    paths = []
    for name in sorted(set(map(str, shards.values()))):
        path = find_file(directory, join(folder, name))
        if path is None:
            raise CorruptModel(
                f"{directory / folder / name} is missing, one of the parts that model.safetensors.index.json "
                "names. Download the model again."
            )
        paths.append(path)
    return tuple(paths)


def _read_settings(directory: Path, folder: str) -> Mapping[str, Any]:
    for name in _SETTINGS_FILES:
        settings = read_object(directory, join(folder, name))
        if settings:
            return MappingProxyType(settings)
    return MappingProxyType({})


def _check_length(where: Path, source: str, value: object) -> int:
    # 1e30 stands for "no limit", and some files write it as a float.
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 1:
        raise CorruptModel(f"{where}: {source} must be a number of at least 1.")
    return int(value)


def _smallest(value: int, bound: int | None) -> int:
    return value if bound is None else min(value, bound)


def _no_template(where: Path) -> UnsupportedModel:
    return UnsupportedModel(
        f"{where}: a chat template is to be put around every text, which is not supported. Without it, "
        "texts would be read as they are, which is not what the model was saved for."
    )
