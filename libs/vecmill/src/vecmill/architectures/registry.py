"""The registry of architectures: for each `model_type`, its settings class and its graph class.

An architecture is a folder of this package: `config` reads its `config.json`, `graph` builds its graph. A new
architecture needs a folder and a line in `ARCHITECTURES`. Importing this module imports no architecture.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, cast

from vecmill.errors import UnsupportedModel
from vecmill.models.encoder_config import EncoderConfig
from vecmill.models.transformers_config import TransformersConfig

if TYPE_CHECKING:
    from vecmill.graphs.encoder import EncoderGraph


@dataclass(frozen=True, slots=True)
class Architecture:
    """The classes of one architecture, as `folder.module:Class` below this package.

    `config` is `None` if the architecture has no `config.json`.
    """

    graph: str
    config: str | None


# By the `model_type` of transformers' `config.json`.
ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        "albert": Architecture("albert.graph:Albert", "albert.config:AlbertConfig"),
        "bert": Architecture("bert.graph:Bert", "bert.config:BertConfig"),
        "camembert": Architecture("roberta.graph:Roberta", "roberta.config:XlmRobertaConfig"),
        "deberta-v2": Architecture("deberta.graph:Deberta", "deberta.config:DebertaConfig"),
        "distilbert": Architecture("distilbert.graph:DistilBert", "distilbert.config:DistilBertConfig"),
        "electra": Architecture("electra.graph:Electra", "electra.config:ElectraConfig"),
        "gemma3_text": Architecture("gemma3.graph:Gemma3", "gemma3.config:Gemma3Config"),
        "gte": Architecture("rotary_bert.graph:Gte", "rotary_bert.config:GteConfig"),
        "mistral": Architecture("decoder.graph:Decoder", "mistral.config:MistralConfig"),
        "modernbert": Architecture("modernbert.graph:ModernBert", "modernbert.config:ModernBertConfig"),
        "mpnet": Architecture("mpnet.graph:MPNet", "mpnet.config:MPNetConfig"),
        "new": Architecture("rotary_bert.graph:New", "rotary_bert.config:NewConfig"),
        "nomic_bert": Architecture("rotary_bert.graph:NomicBert", "rotary_bert.config:NomicBertConfig"),
        "qwen2": Architecture("decoder.graph:Decoder", "qwen.config:Qwen2Config"),
        "qwen3": Architecture("decoder.graph:Decoder", "qwen.config:Qwen3Config"),
        "roberta": Architecture("roberta.graph:Roberta", "roberta.config:RobertaConfig"),
        "static": Architecture("static.graph:Static", None),
        "t5": Architecture("t5.graph:T5", "t5.config:T5Config"),
        "xlm-roberta": Architecture("roberta.graph:Roberta", "roberta.config:XlmRobertaConfig"),
    }
)


class EncoderConfigClass(Protocol):
    """A class named by `Architecture.config`."""

    def read(self, config: Mapping[str, Any]) -> EncoderConfig:
        """Read a `config.json`. Raises `CorruptModel` or `UnsupportedModel`, which name the key."""
        ...


def configured_architectures() -> list[str]:
    """Return every `model_type` with a built-in config class, sorted."""
    return sorted(name for name, found in ARCHITECTURES.items() if found.config is not None)


def read_encoder(config: Mapping[str, Any], path: str, *, runs_code: bool = False) -> EncoderConfig:
    """Read the encoder's settings from `config`; `path` is its path for error messages.

    An architecture without a built-in graph gets a `TransformersConfig`, for transformers to run. With
    `runs_code` the model brings its own class. Raises `CorruptModel` or `UnsupportedModel`.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise UnsupportedModel(f"{path}: there is no model_type. Download the model again.")
    found = None if runs_code else ARCHITECTURES.get(model_type)
    if found is None or found.config is None:
        return TransformersConfig.read(config, path, runs_code=runs_code)
    return cast(EncoderConfigClass, _import_class(found.config)).read(config)


def find_graph_class(model_type: str) -> "type[EncoderGraph[Any]]":
    """Return the class that builds the graph of `model_type`, a key of `ARCHITECTURES`."""
    return cast("type[EncoderGraph[Any]]", _import_class(ARCHITECTURES[model_type].graph))


def _import_class(target: str) -> object:
    module_name, _, class_name = target.partition(":")
    return getattr(importlib.import_module(f"{__package__}.{module_name}"), class_name)
