"""Reads the `config.json` of encoders that differ from BERT or RoBERTa in where they normalise, or in less.

ERNIE, Data2Vec for text, RoBERTa-PreLayerNorm, XLM-RoBERTa-XL and Megatron-BERT.
"""

from dataclasses import dataclass
from typing import ClassVar

from vecmill.architectures.bert import BertConfig, RobertaConfig
from vecmill.models.config_fields import MOST_LAYERS, epsilon, flag, size


@dataclass(frozen=True, slots=True, kw_only=True)
class ErnieConfig(BertConfig):
    """The settings of ERNIE: those of BERT, and with `use_task_id` the embedding of task 0."""

    graph: ClassVar = "bert_variants_graph:Ernie"

    task_type_vocab_size: int = size(3)
    use_task_id: bool = flag(False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Data2VecTextConfig(RobertaConfig):
    """The settings of Data2Vec for text: those of RoBERTa, with another vocabulary size as the default."""

    graph: ClassVar = "bert_variants_graph:Data2VecText"

    vocab_size: int = size(30_522)


@dataclass(frozen=True, slots=True, kw_only=True)
class RobertaPreLayerNormConfig(RobertaConfig):
    """The settings of RoBERTa-PreLayerNorm: those of RoBERTa."""

    graph: ClassVar = "bert_variants_graph:RobertaPreLayerNorm"


@dataclass(frozen=True, slots=True, kw_only=True)
class XlmRobertaXlConfig(RobertaConfig):
    """The settings of XLM-RoBERTa-XL: RoBERTa with other defaults."""

    graph: ClassVar = "bert_variants_graph:XlmRobertaXl"

    vocab_size: int = size(250_880)
    hidden_size: int = size(2560)
    num_hidden_layers: int = size(36, most=MOST_LAYERS)
    num_attention_heads: int = size(32)
    intermediate_size: int = size(10_240)
    max_position_embeddings: int = size(514)
    type_vocab_size: int = size(1, least=0)
    layer_norm_eps: float = epsilon(1e-5)


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronBertConfig(BertConfig):
    """The settings of Megatron-BERT: BERT with other defaults."""

    graph: ClassVar = "bert_variants_graph:MegatronBert"

    vocab_size: int = size(29_056)
    hidden_size: int = size(1024)
    num_hidden_layers: int = size(24, most=MOST_LAYERS)
    num_attention_heads: int = size(16)
    intermediate_size: int = size(4096)
