"""What the `config.json` of Qwen2 and Qwen3 models says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vecmill.models.decoder import (
    DecoderConfig,
    lay_layers,
    read_head_dim,
    read_key_value_heads,
    read_layer_types,
    read_reaches,
)
from vecmill.models.rope import FULL, SLIDING, read_rope
from vecmill.models.settings import (
    head_size,
    read_activation,
    read_epsilon,
    read_flag,
    read_size,
    read_token_id,
)


@dataclass(frozen=True, slots=True)
class Qwen2Config(DecoderConfig):
    """transformers' `Qwen2Config`: biases on queries, keys and values alone."""

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Take what is needed from `config.json`; defaults are those of transformers.

        Raises `CorruptModel` for sizes that cannot be, `UnsupportedModel` for choices not built here.
        """
        hidden_size = read_size(config, "hidden_size", 4096)
        heads = read_size(config, "num_attention_heads", 32)
        own = config if "head_dim" in config else {**config, "head_dim": head_size(hidden_size, heads)}
        return cls(
            **_read_common(own),
            head_dim=read_head_dim(own, 0),
            attention_scale=read_head_dim(own, 0) ** -0.5,
            query_key_value_bias=True,
            output_bias=False,
            query_key_norm=False,
        )


@dataclass(frozen=True, slots=True)
class Qwen3Config(DecoderConfig):
    """transformers' `Qwen3Config`: norms on the heads of queries and keys."""

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Take what is needed from `config.json`; defaults are those of transformers.

        Raises `CorruptModel` for sizes that cannot be, `UnsupportedModel` for choices not built here.
        """
        head_dim = read_head_dim(config, 128)
        bias = read_flag(config, "attention_bias", default=False)
        return cls(
            **_read_common(config),
            head_dim=head_dim,
            attention_scale=head_dim**-0.5,
            query_key_value_bias=bias,
            output_bias=bias,
            query_key_norm=True,
        )


def _read_common(config: Mapping[str, Any]) -> dict[str, Any]:
    heads = read_size(config, "num_attention_heads", 32)
    count = read_size(config, "num_hidden_layers", 32)
    window = _read_window(config)
    first_sliding = count if window is None else _read_first_sliding(config)
    types = read_layer_types(config, [SLIDING if index >= first_sliding else FULL for index in range(count)])
    positions = read_size(config, "max_position_embeddings", 32_768)
    rope = read_rope(config, theta=10_000.0, positions=positions)
    return {
        "vocab_size": read_size(config, "vocab_size", 151_936),
        "hidden_size": read_size(config, "hidden_size", 4096),
        "intermediate_size": read_size(config, "intermediate_size", 22_016),
        "num_attention_heads": heads,
        "num_key_value_heads": read_key_value_heads(config, heads, 32),
        "layers": lay_layers(types, read_reaches(config, window), {FULL: rope, SLIDING: rope}),
        "max_position_embeddings": positions,
        "rms_norm_eps": read_epsilon(config, "rms_norm_eps", 1e-6),
        "hidden_act": read_activation(config, "hidden_act", "silu"),
        "tie_word_embeddings": read_flag(config, "tie_word_embeddings", default=False),
        "pad_token_id": read_token_id(config, "pad_token_id", None),
    }


def _read_window(config: Mapping[str, Any]) -> int | None:
    """Written sliding windows count only where `use_sliding_window` is true."""
    if not read_flag(config, "use_sliding_window", default=False):
        return None
    if "sliding_window" in config and config["sliding_window"] is None:
        return None
    return read_size(config, "sliding_window", 4096)


def _read_first_sliding(config: Mapping[str, Any]) -> int:
    """The first layers, `max_window_layers` of them, see everything; 0 is a number of layers too."""
    return 0 if config.get("max_window_layers") == 0 else read_size(config, "max_window_layers", 28)
