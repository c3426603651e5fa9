"""What the `config.json` of ELECTRA says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vecmill.models.bert import BertConfig, read_bert
from vecmill.models.settings import read_size, refuse_unless


@dataclass(frozen=True, slots=True)
class ElectraConfig(BertConfig):
    """As BERT, with embeddings that may be narrower than hidden states."""

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Take what is needed from `config.json`. Raises as `BertConfig.read`."""
        refuse_unless(config, {"position_embedding_type": ("absolute",), "is_decoder": (False,)})
        fields = read_bert(config, hidden_size=256, num_attention_heads=4, intermediate_size=1024)
        return cls(**{**fields, "embedding_size": read_size(config, "embedding_size", 128)})
