"""What the `config.json` of a BERT encoder, or of one that is built like it, says."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

from vecmill.models.settings import (
    head_size,
    read_activation,
    read_epsilon,
    read_flag,
    read_size,
    refuse_unless,
)


@dataclass(frozen=True, slots=True)
class BertConfig:
    """The sizes and choices that a graph is built from, named as in transformers' `BertConfig`.

    `embedding_size` is the width of the embedding tables. `tie_word_embeddings`: a language model's
    head takes its output weights from the word embeddings unless it has its own.
    """

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int
    layer_norm_eps: float
    hidden_act: str
    embedding_size: int
    tie_word_embeddings: bool

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Take what is needed from `config.json`; defaults are those of transformers' `BertConfig`.

        Raises `CorruptModel` for sizes that cannot be, `UnsupportedModel` for choices not built here.
        """
        refuse_unless(config, {"position_embedding_type": ("absolute",), "is_decoder": (False,)})
        return cls(**read_bert(config))

    @property
    def head_dim(self) -> int:
        """Columns of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def max_input_tokens(self) -> int | None:
        """One token for each position embedding."""
        return self.max_position_embeddings


# What transformers' `BertConfig` assumes where `config.json` is silent.
_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "vocab_size": 30522,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "hidden_act": "gelu",
    }
)
_SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
)


def read_bert(config: Mapping[str, Any], **defaults: Any) -> dict[str, Any]:
    """The fields of `BertConfig`, by name; `defaults` are those that differ in another family.

    Raises `CorruptModel` for sizes that cannot be, `UnsupportedModel` for an unknown activation.
    """
    assumed = {**_DEFAULTS, **defaults}
    fields: dict[str, Any] = {key: read_size(config, key, assumed[key]) for key in _SIZES}
    head_size(fields["hidden_size"], fields["num_attention_heads"])
    return {
        **fields,
        "type_vocab_size": read_size(config, "type_vocab_size", assumed["type_vocab_size"], least=0),
        "layer_norm_eps": read_epsilon(config, "layer_norm_eps", assumed["layer_norm_eps"]),
        "hidden_act": read_activation(config, "hidden_act", assumed["hidden_act"]),
        "embedding_size": fields["hidden_size"],
        "tie_word_embeddings": read_flag(config, "tie_word_embeddings", default=True),
    }
