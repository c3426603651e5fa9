"""Reads the `config.json` of Mistral."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vecmill.architectures.decoder.config import (
    DecoderConfig,
    make_layers,
    read_head_dim,
    read_key_value_heads,
    read_sliding_window,
    read_windows,
)
from vecmill.models.config_fields import (
    MOST_LAYERS,
    head_size,
    read_fields,
    read_size,
    read_token_id,
    refuse_unless,
)
from vecmill.models.rope import FULL, SLIDING, read_rope


@dataclass(frozen=True, slots=True, kw_only=True)
class MistralConfig(DecoderConfig):
    """The settings of Mistral: no biases, and a sliding window for all layers or none."""

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, with the defaults of transformers.

        Raises the same errors as `BertConfig.read`.
        """
        refuse_unless(config, {"attention_bias": (False,), "layer_types": ()})
        sizes = read_fields(cls, config)
        is_written = config.get("head_dim") is not None
        default = 0 if is_written else head_size(sizes["hidden_size"], sizes["num_attention_heads"])
        head_dim = read_head_dim(config, default)
        window = read_sliding_window(config)
        kind = FULL if window is None else SLIDING
        rope = read_rope(config, theta=10_000.0, positions=sizes["max_position_embeddings"])
        types = [kind] * read_size(config, "num_hidden_layers", 32, most=MOST_LAYERS)
        return cls(
            **sizes,
            num_key_value_heads=read_key_value_heads(config, sizes["num_attention_heads"], 8),
            head_dim=head_dim,
            layers=make_layers(types, read_windows(config, window), {kind: rope}),
            attention_scale=head_dim**-0.5,
            query_key_value_bias=False,
            output_bias=False,
            query_key_norm=False,
            pad_token_id=read_token_id(config, "pad_token_id", None),
        )
