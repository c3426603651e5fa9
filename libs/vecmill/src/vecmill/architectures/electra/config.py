"""Reads the `config.json` of ELECTRA."""

from dataclasses import dataclass

from vecmill.architectures.bert.config import BertConfig
from vecmill.models.config_fields import size


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectraConfig(BertConfig):
    """The settings of ELECTRA: those of BERT, with embeddings that may be narrower than hidden states."""

    hidden_size: int = size(256)
    num_attention_heads: int = size(4)
    intermediate_size: int = size(1024)
    embedding_size: int = size(128)
