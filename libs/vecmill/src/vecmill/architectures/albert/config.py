"""Reads the `config.json` of ALBERT."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vecmill.architectures.bert.config import BertConfig
from vecmill.errors import CorruptModel
from vecmill.models.config_fields import MOST_LAYERS, activation, refuse_unless, size

# Published models have 24. Each layer costs time although it has no weights of its own.
_MOST_SHARED_LAYERS = 48


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
    num_hidden_groups: int = size(1, most=MOST_LAYERS)
    inner_group_num: int = size(1, most=MOST_LAYERS)

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`. Raises the same errors as `BertConfig.read`."""
        refuse_unless(config, {"position_embedding_type": ("absolute",)})
        albert = cls._read(config)
        if albert.num_hidden_groups > albert.num_hidden_layers:
            raise CorruptModel("config.json: num_hidden_groups must be at most num_hidden_layers.")
        # Layers share weights, so the weights do not bound their number.
        if albert.num_hidden_layers * albert.inner_group_num > _MOST_SHARED_LAYERS:
            raise CorruptModel(
                f"config.json: num_hidden_layers times inner_group_num must be at most {_MOST_SHARED_LAYERS}."
            )
        return albert
