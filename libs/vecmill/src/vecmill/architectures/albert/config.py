"""Reads the `config.json` of ALBERT."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vecmill.architectures.bert.config import BertConfig
from vecmill.errors import CorruptModel
from vecmill.models.config_fields import activation, refuse_unless, size


@dataclass(frozen=True, slots=True, kw_only=True)
class AlbertConfig(BertConfig):
    """The settings of ALBERT: those of BERT, with narrower embeddings and layers that share weights.

    The model runs `num_hidden_layers` groups of `inner_group_num` layers, but stores weights for only
    `num_hidden_groups` groups.
    """

    vocab_size: int = size(30_000)
    hidden_size: int = size(4096)
    num_attention_heads: int = size(64)
    intermediate_size: int = size(16_384)
    hidden_act: str = activation("gelu_new")
    embedding_size: int = size(128)
    num_hidden_groups: int = size(1)
    inner_group_num: int = size(1)

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`. Raises the same errors as `BertConfig.read`."""
        refuse_unless(config, {"position_embedding_type": ("absolute",)})
        albert = cls._read(config)
        if albert.num_hidden_groups > albert.num_hidden_layers:
            raise CorruptModel("config.json: num_hidden_groups must be at most num_hidden_layers.")
        return albert
