"""What the `config.json` of a Gemma 3 text model says."""

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
from vecmill.models.reach import EVERYWHERE, Reach
from vecmill.models.rope import FULL, SLIDING, read_layered_rope
from vecmill.models.settings import (
    read_activation,
    read_epsilon,
    read_flag,
    read_number,
    read_size,
    read_token_id,
    refuse_unless,
)

_THETAS = {FULL: ("rope_theta", 1_000_000.0), SLIDING: ("rope_local_base_freq", 10_000.0)}


@dataclass(frozen=True, slots=True)
class Gemma3Config(DecoderConfig):
    """transformers' `Gemma3TextConfig`: layers that see a window and, every so often, one that sees all."""

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Take what is needed from `config.json`; defaults are those of transformers.

        Raises `CorruptModel` for sizes that cannot be, `UnsupportedModel` for choices not built here.
        """
        refuse_unless(config, {"attn_logit_softcapping": ()})
        heads = read_size(config, "num_attention_heads", 8)
        bias = read_flag(config, "attention_bias", default=False)
        positions = read_size(config, "max_position_embeddings", 131_072)
        ropes = read_layered_rope(config, thetas=_THETAS, scaled=(FULL,), positions=positions)
        cap = config.get("final_logit_softcapping")
        return cls(
            vocab_size=read_size(config, "vocab_size", 262_208),
            hidden_size=read_size(config, "hidden_size", 2304),
            intermediate_size=read_size(config, "intermediate_size", 9216),
            num_attention_heads=heads,
            num_key_value_heads=read_key_value_heads(config, heads, 4),
            head_dim=read_head_dim(config, 256),
            layers=lay_layers(_read_types(config), _read_reaches(config), ropes),
            max_position_embeddings=positions,
            rms_norm_eps=read_epsilon(config, "rms_norm_eps", 1e-6),
            hidden_act=read_activation(config, "hidden_activation", "gelu_pytorch_tanh"),
            attention_scale=read_number(config, "query_pre_attn_scalar", 256) ** -0.5,
            query_key_value_bias=bias,
            output_bias=bias,
            query_key_norm=True,
            tie_word_embeddings=read_flag(config, "tie_word_embeddings", default=True),
            pad_token_id=read_token_id(config, "pad_token_id", 0),
            final_logit_softcapping=None
            if cap is None
            else read_number(config, "final_logit_softcapping", 0),
        )


def _read_types(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Older files say how often a layer sees everything, newer ones list the layers."""
    count = read_size(config, "num_hidden_layers", 26)
    key = "_sliding_window_pattern" if "sliding_window_pattern" not in config else "sliding_window_pattern"
    pattern = read_size(config, key, 6)
    return read_layer_types(config, [SLIDING if index % pattern else FULL for index in range(1, count + 1)])


def _read_reaches(config: Mapping[str, Any]) -> Mapping[str, Reach]:
    """With `use_bidirectional_attention` the written window is shared out to both sides.

    transformers makes `window // 2 + 1` of it and sees what is nearer than that.
    """
    window = read_size(config, "sliding_window", 4096)
    if not read_flag(config, "use_bidirectional_attention", default=False):
        return read_reaches(config, window)
    refuse_unless(config, {"is_causal": (True,)})
    return {FULL: EVERYWHERE, SLIDING: Reach(window // 2, window // 2)}
