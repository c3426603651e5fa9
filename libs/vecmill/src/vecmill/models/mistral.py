"""What the `config.json` of a Mistral model says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vecmill.models.decoder import DecoderConfig, lay_layers, read_head_dim, read_reaches, read_sizes
from vecmill.models.rope import FULL, SLIDING, read_rope
from vecmill.models.settings import head_size, read_size, refuse_unless


@dataclass(frozen=True, slots=True)
class MistralConfig(DecoderConfig):
    """transformers' `MistralConfig`: no biases, and one sliding window for all layers or none."""

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Take what is needed from `config.json`; defaults are those of transformers.

        Raises `CorruptModel` for sizes that cannot be, `UnsupportedModel` for choices not built here.
        """
        refuse_unless(config, {"attention_bias": (False,), "layer_types": ()})
        sizes = read_sizes(
            config,
            vocab_size=32_000,
            intermediate_size=14_336,
            num_key_value_heads=8,
            max_position_embeddings=131_072,
        )
        is_written = config.get("head_dim") is not None
        default = 0 if is_written else head_size(sizes["hidden_size"], sizes["num_attention_heads"])
        head_dim = read_head_dim(config, default)
        window = _read_window(config)
        kind = FULL if window is None else SLIDING
        rope = read_rope(config, theta=10_000.0, positions=sizes["max_position_embeddings"])
        types = [kind] * read_size(config, "num_hidden_layers", 32)
        return cls(
            **sizes,
            head_dim=head_dim,
            layers=lay_layers(types, read_reaches(config, window), {kind: rope}),
            attention_scale=head_dim**-0.5,
            query_key_value_bias=False,
            output_bias=False,
            query_key_norm=False,
        )


def _read_window(config: Mapping[str, Any]) -> int | None:
    """The window; a null that is written means that there is none."""
    if "sliding_window" in config and config["sliding_window"] is None:
        return None
    return read_size(config, "sliding_window", 4096)
