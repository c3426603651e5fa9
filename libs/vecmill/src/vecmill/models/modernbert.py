"""What the `config.json` of a ModernBERT encoder says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vecmill.errors import UnsupportedModel
from vecmill.models.decoder import DecoderLayer, lay_layers, read_layer_types
from vecmill.models.reach import EVERYWHERE, Reach
from vecmill.models.rope import FULL, SLIDING, read_layered_rope
from vecmill.models.settings import (
    head_size,
    read_activation,
    read_epsilon,
    read_flag,
    read_size,
    refuse_unless,
)

_THETAS = {FULL: ("global_rope_theta", 160_000.0), SLIDING: ("local_rope_theta", 10_000.0)}


@dataclass(frozen=True, slots=True)
class ModernBertConfig:
    """The sizes and choices that a graph is built from, named as in transformers' `ModernBertConfig`."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    head_dim: int
    layers: tuple[DecoderLayer, ...]
    max_position_embeddings: int
    norm_eps: float
    norm_bias: bool
    attention_bias: bool
    mlp_bias: bool
    hidden_activation: str
    classifier_pooling: str
    classifier_bias: bool
    classifier_activation: str
    decoder_bias: bool
    tie_word_embeddings: bool

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Take what is needed from `config.json`; defaults are those of transformers.

        Raises `CorruptModel` for sizes that cannot be, `UnsupportedModel` for choices not built here.
        """
        hidden_size = read_size(config, "hidden_size", 768)
        heads = read_size(config, "num_attention_heads", 12)
        head_dim = head_size(hidden_size, heads)
        refuse_unless(config, {"head_dim": (head_dim,)})
        positions = read_size(config, "max_position_embeddings", 8192)
        return cls(
            vocab_size=read_size(config, "vocab_size", 50_368),
            hidden_size=hidden_size,
            intermediate_size=read_size(config, "intermediate_size", 1152),
            num_attention_heads=heads,
            head_dim=head_dim,
            layers=_read_layers(config, positions),
            max_position_embeddings=positions,
            norm_eps=read_epsilon(config, "norm_eps", 1e-5),
            norm_bias=read_flag(config, "norm_bias", default=False),
            attention_bias=read_flag(config, "attention_bias", default=False),
            mlp_bias=read_flag(config, "mlp_bias", default=False),
            hidden_activation=read_activation(config, "hidden_activation", "gelu"),
            classifier_pooling=_read_pooling(config),
            classifier_bias=read_flag(config, "classifier_bias", default=False),
            classifier_activation=read_activation(config, "classifier_activation", "gelu"),
            decoder_bias=read_flag(config, "decoder_bias", default=True),
            tie_word_embeddings=read_flag(config, "tie_word_embeddings", default=True),
        )

    @property
    def max_input_tokens(self) -> int:
        """What the model was made for."""
        return self.max_position_embeddings


def _read_layers(config: Mapping[str, Any], positions: int) -> tuple[DecoderLayer, ...]:
    count = read_size(config, "num_hidden_layers", 22)
    period = read_size(config, "global_attn_every_n_layers", 3)
    types = read_layer_types(config, [SLIDING if index % period else FULL for index in range(count)])
    # The written window is the whole of it: half to each side, the token itself not counted.
    half = read_size(config, "local_attention", 128) // 2
    refuse_unless(config, {"sliding_window": (half,)})  # transformers would let it overrule the other
    ropes = read_layered_rope(config, thetas=_THETAS, scaled=(FULL, SLIDING), positions=positions)
    return lay_layers(types, {FULL: EVERYWHERE, SLIDING: Reach(half, half)}, ropes)


def _read_pooling(config: Mapping[str, Any]) -> str:
    pooling = config.get("classifier_pooling", "cls")
    if pooling not in ("cls", "mean"):
        raise UnsupportedModel(
            f"config.json: classifier_pooling {pooling!r} is not supported; supported are cls and mean."
        )
    return str(pooling)
