"""Reads the `config.json` of BERT, and the fields that similar architectures share."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vecmill.models.config_fields import (
    MOST_LAYERS,
    activation,
    epsilon,
    flag,
    head_size,
    read_fields,
    refuse_unless,
    size,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BertConfig:
    """The settings of a BERT graph, named as in transformers' `BertConfig`.

    `embedding_size` is the width of the embedding tables. With `tie_word_embeddings` the output weights of a
    language model's head are the word embeddings, unless the head has its own.
    """

    vocab_size: int = size(30_522)
    hidden_size: int = size(768)
    num_hidden_layers: int = size(12, most=MOST_LAYERS)
    num_attention_heads: int = size(12)
    intermediate_size: int = size(3072)
    max_position_embeddings: int = size(512)
    type_vocab_size: int = size(2, least=0)
    layer_norm_eps: float = epsilon(1e-12)
    hidden_act: str = activation("gelu")
    embedding_size: int
    tie_word_embeddings: bool = flag(True)

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, with the defaults of transformers.

        Raises `CorruptModel` for invalid values, `UnsupportedModel` for unsupported ones.
        """
        refuse_unless(config, {"position_embedding_type": ("absolute",), "is_decoder": (False,)})
        return cls._read(config)

    @classmethod
    def _read(cls, config: Mapping[str, Any], **given: Any) -> Self:
        """Read the declared fields that are not `given`; by default `embedding_size` is `hidden_size`."""
        found = read_fields(cls, config, **given)
        head_size(found["hidden_size"], found["num_attention_heads"])
        return cls(**{"embedding_size": found["hidden_size"], **found})

    @property
    def head_dim(self) -> int:
        """The dimension of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def max_input_tokens(self) -> int | None:
        """The number of position embeddings."""
        return self.max_position_embeddings
