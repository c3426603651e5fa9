"""Reads the `config.json` of the encoders of T5, mT5 and UMT5."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import (
    ACTIVATIONS,
    MOST_DISTANCE,
    MOST_LAYERS,
    epsilon,
    read_fields,
    read_flag,
    read_size,
    read_text,
    refuse_unless,
    size,
)
from vecmill.models.encoder_config import EncoderConfig
from vecmill.models.tied_tensors import Tie
from vecmill.values.messages import not_supported


@dataclass(frozen=True, slots=True, kw_only=True)
class T5Config(EncoderConfig):
    """The settings of a T5 graph, named as in transformers' `T5Config`.

    The model has distances instead of positions, so it sets no limit to the length of texts.
    """

    graph: ClassVar = "t5_graph:T5"
    aliases: ClassVar = {
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
        "head_dim": "d_kv",
    }
    default_feed_forward: ClassVar[str] = "relu"

    vocab_size: int = size(32_128)
    hidden_size: int
    d_kv: int = size(64)
    d_ff: int = size(2048)
    num_layers: int = size(6, most=MOST_LAYERS)
    num_heads: int = size(8)
    relative_attention_num_buckets: int = size(32)
    relative_attention_max_distance: int = size(128, most=MOST_DISTANCE)
    layer_norm_epsilon: float = epsilon(1e-6)
    dense_act_fn: str
    is_gated_act: bool

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, with the defaults of transformers.

        Raises the same errors as `BertConfig.read`.
        """
        if read_flag(config, "is_decoder", default=False):
            raise UnsupportedModel("config.json: is_decoder is true; only T5 encoders are supported.")
        name, is_gated = _read_feed_forward(config, cls.default_feed_forward)
        hidden_size = read_size(config, "d_model", 512)
        t5 = cls(
            **read_fields(cls, config, hidden_size=hidden_size, dense_act_fn=name, is_gated_act=is_gated)
        )
        buckets, distance = t5.relative_attention_num_buckets, t5.relative_attention_max_distance
        if not 1 <= buckets // 4 < distance:
            raise CorruptModel(
                f"config.json: relative_attention_num_buckets {buckets} must be at least 4, and less than "
                f"4 times relative_attention_max_distance {distance}."
            )
        return t5

    @property
    def ties(self) -> tuple[Tie, ...]:
        """The encoder's table and that of the whole model, which are tied whatever settings say."""
        return (Tie("encoder.embed_tokens.weight", "shared.weight", "transformer.", of_head=False),)


@dataclass(frozen=True, slots=True, kw_only=True)
class MT5Config(T5Config):
    """The settings of mT5 (Xue et al., 2021): those of T5, with other defaults."""

    default_feed_forward: ClassVar = "gated-gelu"

    vocab_size: int = size(250_112)
    d_ff: int = size(1024)
    num_layers: int = size(8, most=MOST_LAYERS)
    num_heads: int = size(6)


@dataclass(frozen=True, slots=True, kw_only=True)
class UMT5Config(MT5Config):
    """The settings of UMT5 (Chung et al., 2023): those of mT5. Each layer has its own biases."""

    graph: ClassVar = "t5_graph:UMT5"


def _read_feed_forward(config: Mapping[str, Any], default: str) -> tuple[str, bool]:
    """Read the activation, and whether it is gated; "gated-gelu" means a gated "gelu_new"."""
    value = read_text(config, "feed_forward_proj") or default
    gate, _, name = value.rpartition("-")
    activation = "gelu_new" if value == "gated-gelu" else name
    if gate not in ("", "gated") or activation not in ACTIVATIONS:
        raise UnsupportedModel(
            not_supported(
                "config.json: feed_forward_proj",
                value,
                (*sorted(ACTIVATIONS), "and the same after 'gated-'"),
            )
        )
    refuse_unless(config, {"dense_act_fn": (activation,), "is_gated_act": (bool(gate),)})
    return activation, bool(gate)
