"""What the `config.json` of DistilBERT says, whose keys have names of their own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vecmill.models.bert import BertConfig
from vecmill.models.settings import head_size, read_activation, read_flag, read_size


@dataclass(frozen=True, slots=True)
class DistilBertConfig(BertConfig):
    """As BERT, without token types."""

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Take what is needed from `config.json`. Raises as `BertConfig.read`."""
        hidden_size = read_size(config, _spelling(config, "dim", "hidden_size"), 768)
        heads = read_size(config, _spelling(config, "n_heads", "num_attention_heads"), 12)
        head_size(hidden_size, heads)
        return cls(
            vocab_size=read_size(config, "vocab_size", 30522),
            hidden_size=hidden_size,
            num_hidden_layers=read_size(config, _spelling(config, "n_layers", "num_hidden_layers"), 6),
            num_attention_heads=heads,
            intermediate_size=read_size(config, "hidden_dim", 3072),
            max_position_embeddings=read_size(config, "max_position_embeddings", 512),
            type_vocab_size=0,
            layer_norm_eps=1e-12,
            hidden_act=read_activation(config, "activation", "gelu"),
            embedding_size=hidden_size,
            tie_word_embeddings=read_flag(config, "tie_word_embeddings", default=True),
        )


def _spelling(config: Mapping[str, Any], key: str, other: str) -> str:
    """`key`, or BERT's name for it where only that is written: transformers takes both."""
    return other if key not in config and other in config else key
