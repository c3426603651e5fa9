"""Reads the `config.json` of MPNet."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vecmill.architectures.bert.config import BertConfig
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import size

PADDING = 1  # transformers' `MPNetEmbeddings` counts positions from here and ignores `pad_token_id`
BUCKETS = 32  # its encoder uses this number of buckets and ignores `relative_attention_num_buckets`


@dataclass(frozen=True, slots=True, kw_only=True)
class MPNetConfig(BertConfig):
    """The settings of MPNet: those of BERT without token types, and the number of bias buckets."""

    vocab_size: int = size(30_527)
    relative_attention_num_buckets: int = size(BUCKETS)

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`. Raises the same errors as `BertConfig.read`."""
        mpnet = cls._read(config)
        stored = mpnet.relative_attention_num_buckets
        if stored < BUCKETS:
            raise UnsupportedModel(
                f"config.json: relative_attention_num_buckets {stored} is not supported; "
                f"at least {BUCKETS} are."
            )
        if mpnet.max_input_tokens < 1:
            raise CorruptModel(f"config.json: max_position_embeddings must be at least {PADDING + 2}.")
        return mpnet

    @property
    def max_input_tokens(self) -> int:
        """The number of positions after `PADDING`."""
        return self.max_position_embeddings - PADDING - 1
