"""The registry of architectures: for each `model_type`, the class of its settings.

An architecture whose models have the `model_type` of another one is told by a key (`name_architecture`).

The class says everything about its architecture: it reads `config.json`, names the class of the graph, and
has the facts that other rooms ask for (`models.encoder_config`). A new architecture needs a class and a line
in `ARCHITECTURES`. Importing this module imports no architecture; reading settings imports no ONNX library.
"""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from vecmill.errors import UnsupportedModel
from vecmill.models.config_fields import keys_renamed
from vecmill.models.encoder_config import EncoderConfig, TransformersConfig
from vecmill.models.published_code import find_settings_class, list_code, names_class

if TYPE_CHECKING:
    from vecmill.graphs.encoder import EncoderGraph

# By the `model_type` of transformers' `config.json`, as `module:Class` in this package.
ARCHITECTURES: Mapping[str, str] = {
    "albert": "bert:AlbertConfig",
    "bert": "bert:BertConfig",
    "bidirectional_pplx_qwen3": "bidirectional_decoder:PplxQwen3Config",
    "camembert": "bert:XlmRobertaConfig",
    "clip": "towers:ClipTextConfig",
    "data2vec-text": "bert_variants:Data2VecTextConfig",
    "deberta-v2": "deberta:DebertaConfig",
    "distilbert": "bert:DistilBertConfig",
    "electra": "bert:ElectraConfig",
    "embedding_gemma2": "embedding_gemma2:ComposedGemma2Config",
    "embedding_gemma2_text": "embedding_gemma2:EmbeddingGemma2Config",
    "ernie": "bert_variants:ErnieConfig",
    "eurobert": "llama_variants:EuroBertConfig",
    "exaone4": "llama_variants:Exaone4Config",
    "gemma": "gemma:GemmaConfig",
    "gemma2": "gemma:Gemma2Config",
    "gemma3_text": "gemma:Gemma3Config",
    "granite": "llama_variants:GraniteConfig",
    "gte": "rotary_bert:GteConfig",
    "jina_bert": "jina_bert:JinaBertConfig",
    "jina_embeddings_v3": "xlm_roberta_flash:JinaEmbeddingsV3Config",
    "jina_embeddings_v5": "jina_embeddings_v5:JinaEmbeddingsV5Config",
    "jina_embeddings_v5_encoder": "jina_embeddings_v5:JinaEmbeddingsV5EncoderConfig",
    "lfm2": "lfm2:Lfm2Config",
    "llama": "decoder:LlamaConfig",
    "llama_bidirec": "bidirectional_decoder:BidirectionalLlamaConfig",
    "megatron-bert": "bert_variants:MegatronBertConfig",
    "minicpm": "minicpm:MiniCpmConfig",
    "ministral": "llama_variants:MinistralConfig",
    "ministral3": "llama_variants:Ministral3Config",
    "ministral3_bidirec": "bidirectional_decoder:BidirectionalMinistral3Config",
    "mistral": "decoder:MistralConfig",
    "modernbert": "modernbert:ModernBertConfig",
    "mpnet": "bert:MPNetConfig",
    "mt5": "t5:MT5Config",
    "new": "rotary_bert:NewConfig",
    "nomic_bert": "rotary_bert:NomicBertConfig",
    "olmo2": "llama_variants:Olmo2Config",
    "olmo3": "llama_variants:Olmo3Config",
    "phi3": "llama_variants:Phi3Config",
    "qwen2": "decoder:Qwen2Config",
    "qwen3": "decoder:Qwen3Config",
    "qwen3_moe": "qwen_moe:Qwen3MoeConfig",
    "rembert": "bert_variants:RemBertConfig",
    "roberta": "bert:RobertaConfig",
    "roberta-prelayernorm": "bert_variants:RobertaPreLayerNormConfig",
    "seed_oss": "llama_variants:SeedOssConfig",
    "siglip": "towers:SiglipTextConfig",
    "smollm3": "llama_variants:SmolLM3Config",
    "static": "static:StaticConfig",
    "t5": "t5:T5Config",
    "t5gemma": "gemma:T5GemmaConfig",
    "umt5": "t5:UMT5Config",
    "xlm-roberta": "bert:XlmRobertaConfig",
    "xlm-roberta-flash": "xlm_roberta_flash:XlmRobertaFlashConfig",
    "xlm-roberta-xl": "bert_variants:XlmRobertaXlConfig",
}

# The architectures that `model_type` does not tell: its value, a key, the value of the key, and the name.
_TOLD_BY_KEYS: tuple[tuple[str, str, object, str], ...] = (
    ("bert", "position_embedding_type", "alibi", "jina_bert"),
    ("jina_embeddings_v5", "is_decoder", False, "jina_embeddings_v5_encoder"),
    # Their encoders of texts alone, whose settings are not in an object of their own.
    ("clip_text_model", "model_type", "clip_text_model", "clip"),
    ("siglip_text_model", "model_type", "siglip_text_model", "siglip"),
)
# Architectures whose files have no `model_type` of their own, by the class of settings that `auto_map` names.
_PUBLISHED_CLASSES: Mapping[str, str] = {"XLMRobertaFlashConfig": "xlm-roberta-flash"}
_SHARED_TYPES = (None, "", "xlm-roberta")


_CLIP_INSTEAD = "Use a model of CLIP, such as sentence-transformers/clip-ViT-B-32"
# Models of texts and pictures without a graph: why, and what to use instead.
_WITHOUT_GRAPH: Mapping[str, str] = {
    "chinese_clip": "Its encoder of texts is a BERT, not CLIP's. For texts in Chinese use "
    "text=sentence-transformers/clip-ViT-B-32-multilingual-v1,image=sentence-transformers/clip-ViT-B-32",
    "jina_clip": f"Its encoder of pictures is EVA-02, which has other layers than CLIP. {_CLIP_INSTEAD}",
    "siglip2": "It is a NaFlex model, whose number of patches differs by picture. Use one of fixed "
    "resolution, such as google/siglip2-base-patch16-224",
}


class ConfigReader(Protocol):
    """A class of `ARCHITECTURES` whose models have a `config.json`."""

    def read(self, config: Mapping[str, Any]) -> EncoderConfig:
        """Read a `config.json`. Raises `CorruptModel` or `UnsupportedModel`, which name the key."""
        ...


def name_architecture(config: Mapping[str, Any]) -> object:
    """Return the name of the architecture of a `config.json`, a key of `ARCHITECTURES` if there is a graph.

    It is the `model_type`, unless several architectures share it.
    """
    model_type = config.get("model_type")
    for told, key, value, name in _TOLD_BY_KEYS:
        if (model_type, config.get(key)) == (told, value):
            return name
    published = find_settings_class(config) if model_type in _SHARED_TYPES else None
    return model_type if published is None else _PUBLISHED_CLASSES.get(published, model_type)


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


def refuse_without_graph(config: Mapping[str, Any], path: str) -> None:
    """Raise `UnsupportedModel` for a model of texts and pictures that nothing here computes.

    The message says what can be used instead. `path` is that of `config`.
    """
    model_type = config.get("model_type")
    instead = _WITHOUT_GRAPH.get(str(model_type))
    if instead is not None:
        raise UnsupportedModel(f"{path}: model_type {model_type} is not supported. {instead}.")


def has_foreign_code(config: Mapping[str, Any]) -> bool:
    """Return whether `config` names the model's own code and no built-in graph replaces the code."""
    if not config.get("auto_map"):
        return False
    found, named = find_architecture(name_architecture(config)), list_code(config)
    if found is None or found.replaces_code:
        return found is None
    is_known = bool(named) and all(names_class(found.replaced_classes, name) for name in named)
    return not is_known or not isinstance(config["auto_map"], Mapping)


def read_encoder(config: Mapping[str, Any], path: str, *, runs_code: bool = False) -> EncoderConfig:
    """Read the encoder's settings from `config`; `path` is its path for error messages.

    An architecture without a built-in graph gets a `TransformersConfig`, for transformers to run. With
    `runs_code` the model brings its own class. Raises `CorruptModel` or `UnsupportedModel`.
    """
    name = config.get("model_type") if runs_code else name_architecture(config)
    if not isinstance(name, str):
        raise UnsupportedModel(f"{path}: there is no model_type. Download the model again.")
    found = None if runs_code else find_architecture(name)
    if found is None:
        return TransformersConfig.read(config, path, runs_code=runs_code)
    aliases = {key: alias for alias, key in found.aliases.items() if alias in config}
    named = {key: config[alias] for key, alias in aliases.items()}
    with keys_renamed(aliases):
        return cast(ConfigReader, found).read({**config, **named} if named else config)


def find_graph_class(encoder: EncoderConfig) -> "type[EncoderGraph[Any]]":
    """Return the class that builds the graph of an encoder. Raises `ValueError` if it has none."""
    if encoder.graph is None:
        raise ValueError(f"{type(encoder).__name__} has no graph.")
    return cast("type[EncoderGraph[Any]]", _import_class(encoder.graph))


def _import_class(target: str) -> object:
    module_name, _, class_name = target.partition(":")
    return getattr(importlib.import_module(f"{__package__}.{module_name}"), class_name)
