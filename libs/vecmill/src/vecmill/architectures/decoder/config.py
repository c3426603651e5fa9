"""Reads the settings that `config.json` files of decoder-only language models share.

Qwen2, Qwen3, Mistral and Gemma 3 have rotary positions, root-mean-square norms, gated linear units and
grouped query attention.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.attention_window import BIDIRECTIONAL, CAUSAL, AttentionWindow
from vecmill.models.config_fields import (
    MOST_HEAD_DIM,
    MOST_TOKENS,
    activation,
    epsilon,
    flag,
    read_flag,
    read_size,
    refuse_unless,
    show,
    size,
)
from vecmill.models.rope import FULL, SLIDING, Rope


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """The settings that differ between the layers of one model."""

    window: AttentionWindow
    rope: Rope


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """The settings of a decoder graph, named as in transformers where possible.

    With `query_key_norm` heads are normalised before rotation. Sequence classification skips `pad_token_id`
    at the end of a text.
    """

    vocab_size: int = size(32_000)
    hidden_size: int = size(4096)
    intermediate_size: int = size(14_336)
    num_attention_heads: int = size(32)
    num_key_value_heads: int
    head_dim: int
    layers: tuple[DecoderLayer, ...]
    max_position_embeddings: int = size(131_072, most=MOST_TOKENS)
    rms_norm_eps: float = epsilon(1e-6)
    hidden_act: str = activation("silu")
    attention_scale: float
    query_key_value_bias: bool
    output_bias: bool
    query_key_norm: bool
    tie_word_embeddings: bool = flag(False)
    pad_token_id: int | None
    final_logit_softcapping: float | None = None

    @property
    def max_input_tokens(self) -> int:
        """The number of positions of the model."""
        return self.max_position_embeddings


def read_key_value_heads(config: Mapping[str, Any], heads: int, default: int) -> int:
    """Read the number of key and value heads; null stands for the number of query heads."""
    is_null = config.get("num_key_value_heads", default) is None
    count = heads if is_null else read_size(config, "num_key_value_heads", default)
    if heads % count:
        raise CorruptModel(
            f"config.json: num_attention_heads {heads} is not a multiple of num_key_value_heads {count}."
        )
    return count


def read_head_dim(config: Mapping[str, Any], default: int) -> int:
    """Read the dimension of one head, which must be even for rotary positions."""
    size = read_size(config, "head_dim", default, most=MOST_HEAD_DIM)
    if size % 2:
        raise CorruptModel(f"config.json: heads of {size} dimensions cannot have rotary positions.")
    return size


def read_layer_types(config: Mapping[str, Any], default: Sequence[str]) -> tuple[str, ...]:
    """Read `FULL` or `SLIDING` for each layer; `default` has an entry for each layer."""
    types = config.get("layer_types")
    if types is None:
        return tuple(default)
    if not isinstance(types, list) or len(types) != len(default):
        raise CorruptModel(
            f"config.json: layer_types must name one type for each of the {len(default)} layers of "
            "num_hidden_layers."
        )
    unknown = next((kind for kind in types if kind not in (FULL, SLIDING)), None)
    if unknown is not None or None in types:
        raise UnsupportedModel(
            f"config.json: layer_types has {show(unknown)}, which is not supported; supported are "
            f"{FULL} and {SLIDING}."
        )
    return tuple(types)


def read_sliding_window(config: Mapping[str, Any]) -> int | None:
    """Read the size of the sliding window; `None` if the value is null."""
    if "sliding_window" in config and config["sliding_window"] is None:
        return None
    return read_size(config, "sliding_window", 4096)


def read_windows(config: Mapping[str, Any], window: int | None) -> Mapping[str, AttentionWindow]:
    """Return the attention window of each type of layer, by `is_causal` and the sliding `window`.

    The size of a causal window includes the token itself. The size of a bidirectional window does not.
    Source: transformers 5.23, `masking_utils.py`.
    """
    refuse_unless(config, {"use_bidirectional_attention": (False,)})
    causal = read_flag(config, "is_causal", default=True)
    full = CAUSAL if causal else BIDIRECTIONAL
    if window is None:
        return {FULL: full}
    return {
        FULL: full,
        SLIDING: AttentionWindow(window - 1, 0) if causal else AttentionWindow(window, window),
    }


def make_layers(
    types: Sequence[str], windows: Mapping[str, AttentionWindow], ropes: Mapping[str, Rope]
) -> tuple[DecoderLayer, ...]:
    """Return one layer for each of `types`. Raises `CorruptModel` for sliding layers without a window."""
    if not set(types) <= set(windows):
        raise CorruptModel("config.json: layer_types has sliding_attention, but there is no sliding_window.")
    return tuple(DecoderLayer(windows[kind], ropes[kind]) for kind in types)
