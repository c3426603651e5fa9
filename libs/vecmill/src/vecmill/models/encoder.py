"""Which architecture families there are, and what their `config.json` must tell.

A family has two modules: here one that reads its settings, in `graphs` one that builds it.
"""

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol, cast

from vecmill.errors import UnsupportedModel
from vecmill.models.library import LibraryConfig

# transformers' `model_type` -> the class that reads its `config.json`.
ENCODERS: Mapping[str, str] = MappingProxyType(
    {
        "albert": "vecmill.models.albert:AlbertConfig",
        "bert": "vecmill.models.bert:BertConfig",
        "camembert": "vecmill.models.roberta:XlmRobertaConfig",
        "deberta-v2": "vecmill.models.deberta:DebertaConfig",
        "distilbert": "vecmill.models.distilbert:DistilBertConfig",
        "electra": "vecmill.models.electra:ElectraConfig",
        "gemma3_text": "vecmill.models.gemma3:Gemma3Config",
        "gte": "vecmill.models.rotary_bert:GteConfig",
        "mistral": "vecmill.models.mistral:MistralConfig",
        "modernbert": "vecmill.models.modernbert:ModernBertConfig",
        "mpnet": "vecmill.models.mpnet:MPNetConfig",
        "new": "vecmill.models.rotary_bert:NewConfig",
        "nomic_bert": "vecmill.models.rotary_bert:NomicBertConfig",
        "qwen2": "vecmill.models.qwen:Qwen2Config",
        "qwen3": "vecmill.models.qwen:Qwen3Config",
        "roberta": "vecmill.models.roberta:RobertaConfig",
        "t5": "vecmill.models.t5:T5Config",
        "xlm-roberta": "vecmill.models.roberta:XlmRobertaConfig",
    }
)


class EncoderConfig(Protocol):
    """What is needed of every family's settings."""

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding table."""
        ...

    @property
    def hidden_size(self) -> int:
        """Width of a hidden state."""
        ...

    @property
    def max_input_tokens(self) -> int | None:
        """The longest input that the encoder can position, special tokens included; `None` for any."""
        ...


class EncoderConfigClass(Protocol):
    """What the table names."""

    def read(self, config: Mapping[str, Any]) -> EncoderConfig:
        """Take what is needed; raises `CorruptModel` or `UnsupportedModel` and names the key."""
        ...


def read_encoder(config: Mapping[str, Any], where: str, *, runs_code: bool = False) -> EncoderConfig:
    """The settings of the encoder in `config`: of a family that has a graph, else those for transformers.

    `where` names the file in errors; with `runs_code` the class comes with the model. Raises `CorruptModel`
    or `UnsupportedModel`.
    """
    architecture = config.get("model_type")
    if not isinstance(architecture, str):
        raise UnsupportedModel(f"{where}: there is no model_type. Get the model again.")
    if runs_code or architecture not in ENCODERS:
        return LibraryConfig.read(config, where, runs_code=runs_code)
    module_name, _, class_name = ENCODERS[architecture].partition(":")
    reader = cast(EncoderConfigClass, getattr(importlib.import_module(module_name), class_name))
    return reader.read(config)
