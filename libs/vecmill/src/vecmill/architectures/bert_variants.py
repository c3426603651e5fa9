"""Reads the `config.json` of encoders that differ from BERT or RoBERTa in where they normalise, or in less.

ERNIE, Data2Vec for text, RoBERTa-PreLayerNorm, XLM-RoBERTa-XL, Megatron-BERT and RemBERT.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from vecmill.architectures.bert import BertConfig, RobertaConfig
from vecmill.models.config_fields import MOST_LAYERS, epsilon, flag, read_size, refuse_unless, size


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RemBertConfig(BertConfig):
    """The settings of RemBERT: those of BERT, with embeddings of other widths than hidden states.

    `input_embedding_size` is the `embedding_size`. The language model's head has its own weights, never the
    word embeddings, of the width `output_embedding_size`.
    """

    graph: ClassVar = "bert_variants_graph:RemBert"

    vocab_size: int = size(250_300)
    hidden_size: int = size(1152)
    num_hidden_layers: int = size(32, most=MOST_LAYERS)
    num_attention_heads: int = size(18)
    intermediate_size: int = size(4608)
    output_embedding_size: int = size(1664)

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`. Raises the same errors as `BertConfig.read`."""
        refuse_unless(config, {"is_decoder": (False,)})
        return cls._read(
            config, embedding_size=read_size(config, "input_embedding_size", 256), tie_word_embeddings=False
        )

    @property
    def vocabulary_width(self) -> int:
        """The width of the states from which the language model's head predicts tokens."""
        return self.output_embedding_size
