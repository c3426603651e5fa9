"""Reads the `config.json` of Jina's "flash" implementation of XLM-RoBERTa.

jina-reranker-v2 was published with this code. Such a file has no `model_type`, or that of XLM-RoBERTa. The
class of the settings, which `auto_map` names, tells the architecture (`architectures.registry`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from vecmill.architectures.bert import RobertaConfig, read_padding
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import epsilon, read_choice, refuse_unless, size

# Keys that a published file must have, because versions of the code have different defaults.
_NEEDS = (
    "hidden_act",
    "hidden_size",
    "intermediate_size",
    "layer_norm_eps",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "pad_token_id",
    "position_embedding_type",
    "type_vocab_size",
    "vocab_size",
)

# The supported values of keys that only the published code reads.
_CHOICES: Mapping[str, tuple[Any, ...]] = {
    "emb_pooler": ("mean",),
    "fused_mlp": (False,),
    "is_decoder": (False,),
    "last_layer_subset": (False,),
    "lora_adaptations": (),
    "pad_vocab_size_multiple": (1,),
    "position_embedding_type": ("absolute",),
    "truncate_dim": (),
}
_ACTIVATIONS = ("gelu", "gelu_fast", "gelu_new", "gelu_pytorch_tanh")


@dataclass(frozen=True, slots=True, kw_only=True)
class XlmRobertaFlashConfig(RobertaConfig):
    """The settings of the graph: those of XLM-RoBERTa, with the defaults of the published code."""

    graph: ClassVar = "xlm_roberta_flash_graph:XlmRobertaFlash"
    replaces_code: ClassVar = True
    has_other_class: ClassVar = True

    vocab_size: int = size(250_002)
    hidden_size: int = size(1024)
    num_hidden_layers: int = size(24)
    num_attention_heads: int = size(16)
    intermediate_size: int = size(4096)
    max_position_embeddings: int = size(8194)
    type_vocab_size: int = size(1)
    layer_norm_eps: float = epsilon(1e-5)

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`. Raises the same errors as `BertConfig.read`."""
        missing = [key for key in _NEEDS if config.get(key) is None]
        if "auto_map" in config and missing:
            raise UnsupportedModel(f"config.json: without {', '.join(missing)} the model is not supported.")
        refuse_unless(config, _CHOICES)
        activation = read_choice(config, "hidden_act", _ACTIVATIONS, "gelu")
        read = cls._read(config, pad_token_id=read_padding(config), hidden_act=activation)
        if read.max_input_tokens < 1:
            raise CorruptModel(
                f"config.json: max_position_embeddings {read.max_position_embeddings} leaves no position "
                f"after pad_token_id {read.pad_token_id}."
            )
        return read
