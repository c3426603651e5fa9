"""Reads the `config.json` of Gemma 3 text models."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vecmill.architectures.decoder.config import (
    DecoderConfig,
    make_layers,
    read_head_dim,
    read_key_value_heads,
    read_layer_types,
    read_windows,
)
from vecmill.models.attention_window import BIDIRECTIONAL, AttentionWindow
from vecmill.models.config_fields import (
    MOST_LAYERS,
    flag,
    read_activation,
    read_fields,
    read_flag,
    read_number,
    read_size,
    read_token_id,
    refuse_unless,
    size,
)
from vecmill.models.rope import FULL, SLIDING, read_rope_by_layer_type

_THETAS = {FULL: ("rope_theta", 1_000_000.0), SLIDING: ("rope_local_base_freq", 10_000.0)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemma3Config(DecoderConfig):
    """The settings of Gemma 3 (transformers' `Gemma3TextConfig`), with sliding and full attention layers."""

    vocab_size: int = size(262_208)
    hidden_size: int = size(2304)
    intermediate_size: int = size(9216)
    num_attention_heads: int = size(8)
    tie_word_embeddings: bool = flag(True)

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, with the defaults of transformers.

        Raises the same errors as `BertConfig.read`.
        """
        refuse_unless(config, {"attn_logit_softcapping": ()})
        act = read_activation(config, "hidden_activation", "gelu_pytorch_tanh")
        found = read_fields(cls, config, hidden_act=act)
        bias = read_flag(config, "attention_bias", default=False)
        positions = found["max_position_embeddings"]
        ropes = read_rope_by_layer_type(config, thetas=_THETAS, scaled=(FULL,), positions=positions)
        is_capped = config.get("final_logit_softcapping") is not None
        return cls(
            **found,
            num_key_value_heads=read_key_value_heads(config, found["num_attention_heads"], 4),
            head_dim=read_head_dim(config, 256),
            layers=make_layers(_read_types(config), _read_windows(config), ropes),
            attention_scale=read_number(config, "query_pre_attn_scalar", 256) ** -0.5,
            query_key_value_bias=bias,
            output_bias=bias,
            query_key_norm=True,
            pad_token_id=read_token_id(config, "pad_token_id", 0),
            final_logit_softcapping=read_number(config, "final_logit_softcapping", 0) if is_capped else None,
        )


def _read_types(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Read the types of the layers; older files have only the period of full attention layers."""
    count = read_size(config, "num_hidden_layers", 26, most=MOST_LAYERS)
    key = "_sliding_window_pattern" if "sliding_window_pattern" not in config else "sliding_window_pattern"
    pattern = read_size(config, key, 6)
    return read_layer_types(config, [SLIDING if index % pattern else FULL for index in range(1, count + 1)])


def _read_windows(config: Mapping[str, Any]) -> Mapping[str, AttentionWindow]:
    """Read the attention windows; with `use_bidirectional_attention` half of the size is on each side.

    transformers computes `window // 2 + 1` and attends to smaller distances.
    """
    window = read_size(config, "sliding_window", 4096)
    if not read_flag(config, "use_bidirectional_attention", default=False):
        return read_windows(config, window)
    refuse_unless(config, {"is_causal": (True,)})
    return {FULL: BIDIRECTIONAL, SLIDING: AttentionWindow(window // 2, window // 2)}
