"""What the `config.json` of a T5 encoder says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.settings import ACTIVATIONS, read_epsilon, read_flag, read_size, refuse_unless


@dataclass(frozen=True, slots=True)
class T5Config:
    """The sizes and choices that a graph is built from, named as in transformers' `T5Config`."""

    vocab_size: int
    hidden_size: int
    d_kv: int
    d_ff: int
    num_layers: int
    num_heads: int
    relative_attention_num_buckets: int
    relative_attention_max_distance: int
    layer_norm_epsilon: float
    dense_act_fn: str
    is_gated_act: bool

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Take what is needed from `config.json`; defaults are those of transformers.

        Raises `CorruptModel` for sizes that cannot be, `UnsupportedModel` for choices not built here.
        """
        if read_flag(config, "is_decoder", default=False):
            raise UnsupportedModel("config.json: is_decoder is true; only T5 encoders are supported.")
        activation, is_gated = _read_feed_forward(config)
        buckets = read_size(config, "relative_attention_num_buckets", 32)
        distance = read_size(config, "relative_attention_max_distance", 128)
        if not 1 <= buckets // 4 < distance:
            raise CorruptModel(
                f"config.json: relative_attention_num_buckets {buckets} must be at least 4, and less than "
                f"4 times relative_attention_max_distance {distance}."
            )
        return cls(
            vocab_size=read_size(config, "vocab_size", 32_128),
            hidden_size=read_size(config, "d_model", 512),
            d_kv=read_size(config, "d_kv", 64),
            d_ff=read_size(config, "d_ff", 2048),
            num_layers=read_size(config, "num_layers", 6),
            num_heads=read_size(config, "num_heads", 8),
            relative_attention_num_buckets=buckets,
            relative_attention_max_distance=distance,
            layer_norm_epsilon=read_epsilon(config, "layer_norm_epsilon", 1e-6),
            dense_act_fn=activation,
            is_gated_act=is_gated,
        )

    @property
    def max_input_tokens(self) -> None:
        """Any: distances, not positions, are what the model knows."""
        return None


def _read_feed_forward(config: Mapping[str, Any]) -> tuple[str, bool]:
    """The activation, and whether it gates: "relu" or, say, "gated-gelu", which means "gelu_new"."""
    written = str(config.get("feed_forward_proj") or "relu")
    gate, _, name = written.rpartition("-")
    activation = "gelu_new" if written == "gated-gelu" else name
    if gate not in ("", "gated") or activation not in ACTIVATIONS:
        raise UnsupportedModel(
            f"config.json: feed_forward_proj {written!r} is not supported; supported are "
            f"{', '.join(sorted(ACTIVATIONS))}, and the same after 'gated-'."
        )
    refuse_unless(config, {"dense_act_fn": (activation,), "is_gated_act": (bool(gate),)})
    return activation, bool(gate)
