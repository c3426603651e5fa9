"""What the `config.json` of ALBERT says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vecmill.errors import CorruptModel
from vecmill.models.bert import BertConfig, read_bert
from vecmill.models.settings import read_size, refuse_unless


@dataclass(frozen=True, slots=True)
class AlbertConfig(BertConfig):
    """As BERT, with narrower embeddings and layers that share weights.

    `num_hidden_groups` groups of `inner_group_num` layers are run `num_hidden_layers` times altogether.
    """

    num_hidden_groups: int
    inner_group_num: int

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Take what is needed from `config.json`. Raises as `BertConfig.read`."""
        refuse_unless(config, {"position_embedding_type": ("absolute",)})
        fields = read_bert(
            config,
            vocab_size=30000,
            hidden_size=4096,
            num_attention_heads=64,
            intermediate_size=16384,
            hidden_act="gelu_new",
        )
        albert = cls(
            **{**fields, "embedding_size": read_size(config, "embedding_size", 128)},
            num_hidden_groups=read_size(config, "num_hidden_groups", 1),
            inner_group_num=read_size(config, "inner_group_num", 1),
        )
        if albert.num_hidden_groups > albert.num_hidden_layers:
            raise CorruptModel("config.json: num_hidden_groups must be at most num_hidden_layers.")
        return albert
