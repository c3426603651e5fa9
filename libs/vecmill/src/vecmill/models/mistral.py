"""What the `config.json` of a Mistral model says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vecmill.models.decoder import (
    DecoderConfig,
    lay_layers,
    read_head_dim,
    read_key_value_heads,
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
    refuse_unless,
)


@dataclass(frozen=True, slots=True)
class MistralConfig(DecoderConfig):
    """transformers' `MistralConfig`: no biases, and one sliding window for all layers or none."""

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Take what is needed from `config.json`; defaults are those of transformers.

        Raises `CorruptModel` for sizes that cannot be, `UnsupportedModel` for choices not built here.
        """
        refuse_unless(config, {"attention_bias": (False,), "layer_types": ()})
        hidden_size = read_size(config, "hidden_size", 4096)
        heads = read_size(config, "num_attention_heads", 32)
        head_dim = read_head_dim(
            config, 0 if config.get("head_dim") is not None else head_size(hidden_size, heads)
        )
        window = _read_window(config)
        kind = FULL if window is None else SLIDING
        positions = read_size(config, "max_position_embeddings", 131_072)
        rope = read_rope(config, theta=10_000.0, positions=positions)
        types = [kind] * read_size(config, "num_hidden_layers", 32)
        return cls(
            vocab_size=read_size(config, "vocab_size", 32_000),
            hidden_size=hidden_size,
            intermediate_size=read_size(config, "intermediate_size", 14_336),
            num_attention_heads=heads,
            num_key_value_heads=read_key_value_heads(config, heads, 8),
            head_dim=head_dim,
            layers=lay_layers(types, read_reaches(config, window), {kind: rope}),
            max_position_embeddings=positions,
            rms_norm_eps=read_epsilon(config, "rms_norm_eps", 1e-6),
            hidden_act=read_activation(config, "hidden_act", "silu"),
            attention_scale=head_dim**-0.5,
            query_key_value_bias=False,
            output_bias=False,
            query_key_norm=False,
            tie_word_embeddings=read_flag(config, "tie_word_embeddings", default=False),
            pad_token_id=read_token_id(config, "pad_token_id", None),
        )


def _read_window(config: Mapping[str, Any]) -> int | None:
    """The window; a null that is written means that there is none."""
    if "sliding_window" in config and config["sliding_window"] is None:
        return None
    return read_size(config, "sliding_window", 4096)
