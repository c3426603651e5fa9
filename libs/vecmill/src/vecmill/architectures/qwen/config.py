"""Reads the `config.json` of Qwen2 and Qwen3."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vecmill.architectures.decoder.config import (
    DecoderConfig,
    make_layers,
    read_head_dim,
    read_key_value_heads,
    read_layer_types,
    read_sliding_window,
    read_windows,
)
from vecmill.models.config_fields import (
    MOST_LAYERS,
    head_size,
    read_fields,
    read_flag,
    read_size,
    read_token_id,
    size,
)
from vecmill.models.rope import FULL, SLIDING, read_rope


@dataclass(frozen=True, slots=True, kw_only=True)
class QwenConfig(DecoderConfig):
    """The fields that Qwen2 and Qwen3 have in common, with the defaults of transformers."""

    vocab_size: int = size(151_936)
    intermediate_size: int = size(22_016)
    max_position_embeddings: int = size(32_768)


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen2Config(QwenConfig):
    """The settings of Qwen2: biases on queries, keys and values alone."""

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, with the defaults of transformers.

        Raises the same errors as `BertConfig.read`.
        """
        hidden_size = read_size(config, "hidden_size", 4096)
        heads = read_size(config, "num_attention_heads", 32)
        own = config if "head_dim" in config else {**config, "head_dim": head_size(hidden_size, heads)}
        return cls(
            **_read_common(cls, own),
            head_dim=read_head_dim(own, 0),
            attention_scale=read_head_dim(own, 0) ** -0.5,
            query_key_value_bias=True,
            output_bias=False,
            query_key_norm=False,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen3Config(QwenConfig):
    """The settings of Qwen3: norms on the heads of queries and keys."""

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, with the defaults of transformers.

        Raises the same errors as `BertConfig.read`.
        """
        head_dim = read_head_dim(config, 128)
        bias = read_flag(config, "attention_bias", default=False)
        return cls(
            **_read_common(cls, config),
            head_dim=head_dim,
            attention_scale=head_dim**-0.5,
            query_key_value_bias=bias,
            output_bias=bias,
            query_key_norm=True,
        )


def _read_common(kind: type[QwenConfig], config: Mapping[str, Any]) -> dict[str, Any]:
    sizes = read_fields(kind, config)
    count = read_size(config, "num_hidden_layers", 32, most=MOST_LAYERS)
    window = _read_window(config)
    first_sliding = count if window is None else _read_first_sliding(config)
    types = read_layer_types(config, [SLIDING if index >= first_sliding else FULL for index in range(count)])
    rope = read_rope(config, theta=10_000.0, positions=sizes["max_position_embeddings"])
    layers = make_layers(types, read_windows(config, window), {FULL: rope, SLIDING: rope})
    return {
        **sizes,
        "num_key_value_heads": read_key_value_heads(config, sizes["num_attention_heads"], 32),
        "pad_token_id": read_token_id(config, "pad_token_id", None),
        "layers": layers,
    }


def _read_window(config: Mapping[str, Any]) -> int | None:
    """Read the size of the sliding window, which is ignored unless `use_sliding_window` is true."""
    is_used = read_flag(config, "use_sliding_window", default=False)
    return read_sliding_window(config) if is_used else None


def _read_first_sliding(config: Mapping[str, Any]) -> int:
    """Read `max_window_layers`, the number of full attention layers at the beginning, which may be 0."""
    return 0 if config.get("max_window_layers") == 0 else read_size(config, "max_window_layers", 28)
