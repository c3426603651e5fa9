"""What the `config.json` of Qwen2 and Qwen3 models says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vecmill.models.decoder import (
    DecoderConfig,
    lay_layers,
    read_head_dim,
    read_layer_types,
    read_reaches,
    read_sizes,
)
from vecmill.models.rope import FULL, SLIDING, read_rope
from vecmill.models.settings import head_size, read_flag, read_size


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
    sizes = read_sizes(
        config,
        vocab_size=151_936,
        intermediate_size=22_016,
        num_key_value_heads=32,
        max_position_embeddings=32_768,
    )
    count = read_size(config, "num_hidden_layers", 32)
    window = _read_window(config)
    first_sliding = count if window is None else _read_first_sliding(config)
    types = read_layer_types(config, [SLIDING if index >= first_sliding else FULL for index in range(count)])
    rope = read_rope(config, theta=10_000.0, positions=sizes["max_position_embeddings"])
    layers = lay_layers(types, read_reaches(config, window), {FULL: rope, SLIDING: rope})
    return {**sizes, "layers": layers}


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
