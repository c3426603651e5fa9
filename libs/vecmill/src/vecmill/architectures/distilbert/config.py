"""Reads the `config.json` of DistilBERT, whose keys differ from BERT's."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vecmill.architectures.bert.config import BertConfig
from vecmill.models.config_fields import MOST_LAYERS, read_activation, read_size


@dataclass(frozen=True, slots=True, kw_only=True)
class DistilBertConfig(BertConfig):
    """The settings of DistilBERT: those of BERT, without token types."""

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`. Raises the same errors as `BertConfig.read`."""
        return cls._read(
            config,
            hidden_size=read_size(config, _spelling(config, "dim", "hidden_size"), 768),
            num_hidden_layers=read_size(
                config, _spelling(config, "n_layers", "num_hidden_layers"), 6, most=MOST_LAYERS
            ),
            num_attention_heads=read_size(config, _spelling(config, "n_heads", "num_attention_heads"), 12),
            intermediate_size=read_size(config, "hidden_dim", 3072),
            type_vocab_size=0,
            layer_norm_eps=1e-12,
            hidden_act=read_activation(config, "activation", "gelu"),
        )


def _spelling(config: Mapping[str, Any], key: str, other: str) -> str:
    """Return `key`, or BERT's name of it if only that is present: transformers accepts both."""
    return other if key not in config and other in config else key
