"""What the `config.json` of a BERT encoder says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vecmill.errors import CorruptModel, UnsupportedModel

# transformers' names for the activations that graphs can build.
ACTIVATIONS = frozenset({"gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish"})


@dataclass(frozen=True, slots=True)
class BertConfig:
    """The sizes and choices that a graph is built from, named as in transformers' `BertConfig`."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int
    layer_norm_eps: float
    hidden_act: str

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Take what is needed from `config.json`; defaults are those of transformers.

        Raises `CorruptModel` for sizes that cannot be, `UnsupportedModel` for choices not built here.
        """
        bert = cls(
            vocab_size=_size(config, "vocab_size", 30522),
            hidden_size=_size(config, "hidden_size", 768),
            num_hidden_layers=_size(config, "num_hidden_layers", 12),
            num_attention_heads=_size(config, "num_attention_heads", 12),
            intermediate_size=_size(config, "intermediate_size", 3072),
            max_position_embeddings=_size(config, "max_position_embeddings", 512),
            type_vocab_size=_size(config, "type_vocab_size", 2),
            layer_norm_eps=_epsilon(config),
            hidden_act=str(config.get("hidden_act", "gelu")),
        )
        bert._check(config)
        return bert

    @property
    def head_dim(self) -> int:
        """Columns of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def max_input_tokens(self) -> int:
        """One token for each position embedding."""
        return self.max_position_embeddings

    def _check(self, config: Mapping[str, Any]) -> None:
        if self.hidden_size % self.num_attention_heads:
            raise CorruptModel(
                f"config.json: hidden_size {self.hidden_size} is not a multiple of "
                f"num_attention_heads {self.num_attention_heads}."
            )
        if self.hidden_act not in ACTIVATIONS:
            raise UnsupportedModel(
                f"config.json: hidden_act {self.hidden_act!r} is not supported; "
                f"supported are {', '.join(sorted(ACTIVATIONS))}."
            )
        if config.get("position_embedding_type", "absolute") != "absolute":
            raise UnsupportedModel(
                f"config.json: position_embedding_type {config['position_embedding_type']!r} is not "
                "supported; only 'absolute' is."
            )
        if config.get("is_decoder"):
            raise UnsupportedModel("config.json: is_decoder is true; only BERT encoders are supported.")


def _size(config: Mapping[str, Any], key: str, default: int) -> int:
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise CorruptModel(f"config.json: {key} must be a whole number of at least 1.")
    return value


def _epsilon(config: Mapping[str, Any]) -> float:
    value = config.get("layer_norm_eps", 1e-12)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise CorruptModel("config.json: layer_norm_eps must be a number between 0 and 1.")
    return float(value)
