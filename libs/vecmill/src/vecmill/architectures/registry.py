"""The registry of architectures: for each `model_type`, the class of its settings.

The class says everything about its architecture: it reads `config.json`, names the class of the graph, and
has the facts that other rooms ask for (`models.encoder_config`). A new architecture needs a class and a line
in `ARCHITECTURES`. Importing this module imports no architecture; reading settings imports no ONNX library.
"""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from vecmill.errors import UnsupportedModel
from vecmill.models.encoder_config import EncoderConfig
from vecmill.models.published_code import list_code, names_class
from vecmill.models.transformers_config import TransformersConfig

if TYPE_CHECKING:
    from vecmill.graphs.encoder import EncoderGraph

# By the `model_type` of transformers' `config.json`, as `module:Class` in this package.
ARCHITECTURES: Mapping[str, str] = {
    "albert": "bert:AlbertConfig",
    "bert": "bert:BertConfig",
    "bidirectional_pplx_qwen3": "bidirectional_decoder:PplxQwen3Config",
    "camembert": "bert:XlmRobertaConfig",
    "data2vec-text": "bert_variants:Data2VecTextConfig",
    "deberta-v2": "deberta:DebertaConfig",
    "distilbert": "bert:DistilBertConfig",
    "electra": "bert:ElectraConfig",
    "ernie": "bert_variants:ErnieConfig",
    "eurobert": "llama_variants:EuroBertConfig",
    "exaone4": "llama_variants:Exaone4Config",
    "gemma": "gemma:GemmaConfig",
    "gemma2": "gemma:Gemma2Config",
    "gemma3_text": "gemma:Gemma3Config",
    "granite": "llama_variants:GraniteConfig",
    "gte": "rotary_bert:GteConfig",
    "llama": "decoder:LlamaConfig",
    "llama_bidirec": "bidirectional_decoder:BidirectionalLlamaConfig",
    "megatron-bert": "bert_variants:MegatronBertConfig",
    "ministral": "llama_variants:MinistralConfig",
    "mistral": "decoder:MistralConfig",
    "modernbert": "modernbert:ModernBertConfig",
    "mpnet": "bert:MPNetConfig",
    "new": "rotary_bert:NewConfig",
    "nomic_bert": "rotary_bert:NomicBertConfig",
    "olmo2": "llama_variants:Olmo2Config",
    "olmo3": "llama_variants:Olmo3Config",
    "phi3": "llama_variants:Phi3Config",
    "qwen2": "decoder:Qwen2Config",
    "qwen3": "decoder:Qwen3Config",
    "roberta": "bert:RobertaConfig",
    "roberta-prelayernorm": "bert_variants:RobertaPreLayerNormConfig",
    "seed_oss": "llama_variants:SeedOssConfig",
    "smollm3": "llama_variants:SmolLM3Config",
    "static": "static:StaticConfig",
    "t5": "t5:T5Config",
    "xlm-roberta": "bert:XlmRobertaConfig",
    "xlm-roberta-xl": "bert_variants:XlmRobertaXlConfig",
}


class ConfigReader(Protocol):
    """A class of `ARCHITECTURES` whose models have a `config.json`."""

    def read(self, config: Mapping[str, Any]) -> EncoderConfig:
        """Read a `config.json`. Raises `CorruptModel` or `UnsupportedModel`, which name the key."""
        ...


def find_architecture(model_type: object) -> type[EncoderConfig] | None:
    """Return the settings class of an architecture with a graph and a `config.json`, or `None`."""
    if not isinstance(model_type, str) or model_type not in ARCHITECTURES:
        return None
    found = cast(type[EncoderConfig], _import_class(ARCHITECTURES[model_type]))
    return found if found.has_config else None


def configured_architectures() -> dict[str, type[EncoderConfig]]:
    """Return all classes that `find_architecture` finds by `model_type`, sorted."""
    found = {name: find_architecture(name) for name in sorted(ARCHITECTURES)}
    return {name: architecture for name, architecture in found.items() if architecture is not None}


def replaces_code(config: Mapping[str, Any]) -> bool:
    """Return whether a built-in graph replaces the code that `auto_map` of a `config.json` names."""
    found = find_architecture(config.get("model_type"))
    if found is None:
        return False
    named = list_code(config)
    return found.replaces_code or (
        bool(named) and all(names_class(found.replaced_classes, one) for one in named)
    )


def read_encoder(config: Mapping[str, Any], path: str, *, runs_code: bool = False) -> EncoderConfig:
    """Read the encoder's settings from `config`; `path` is its path for error messages.

    An architecture without a built-in graph gets a `TransformersConfig`, for transformers to run. With
    `runs_code` the model brings its own class. Raises `CorruptModel` or `UnsupportedModel`.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise UnsupportedModel(f"{path}: there is no model_type. Download the model again.")
    found = None if runs_code else find_architecture(model_type)
    if found is None:
        return TransformersConfig.read(config, path, runs_code=runs_code)
    return cast(ConfigReader, found).read(config)


def find_graph_class(encoder: EncoderConfig) -> "type[EncoderGraph[Any]]":
    """Return the class that builds the graph of an encoder. Raises `ValueError` if it has none."""
    if encoder.graph is None:
        raise ValueError(f"{type(encoder).__name__} has no graph.")
    return cast("type[EncoderGraph[Any]]", _import_class(encoder.graph))


def _import_class(target: str) -> object:
    module_name, _, class_name = target.partition(":")
    return getattr(importlib.import_module(f"{__package__}.{module_name}"), class_name)
