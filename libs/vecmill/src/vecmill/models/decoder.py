"""What decoder-only language models that serve as encoders have in common in their `config.json`.

Qwen2, Qwen3, Mistral and Gemma 3: rotary positions, root-mean-square norms, gated linear units, groups
of query heads that share keys and values, and no dropout that matters here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.reach import CAUSAL, EVERYWHERE, Reach
from vecmill.models.rope import FULL, SLIDING, Rope
from vecmill.models.settings import (
    read_activation,
    read_epsilon,
    read_flag,
    read_size,
    read_token_id,
    refuse_unless,
)


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """What differs between the layers of one model."""

    reach: Reach
    rope: Rope


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """The sizes and choices that a graph is built from, named as in transformers where it has names.

    `query_key_norm` says whether heads are normalised before they are turned. `pad_token_id` is what
    sequence classification skips at the end of a text.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    layers: tuple[DecoderLayer, ...]
    max_position_embeddings: int
    rms_norm_eps: float
    hidden_act: str
    attention_scale: float
    query_key_value_bias: bool
    output_bias: bool
    query_key_norm: bool
    tie_word_embeddings: bool
    pad_token_id: int | None
    final_logit_softcapping: float | None = None

    @property
    def max_input_tokens(self) -> int:
        """What the model was made for."""
        return self.max_position_embeddings


def read_sizes(
    config: Mapping[str, Any],
    *,
    vocab_size: int,
    intermediate_size: int,
    num_key_value_heads: int,
    max_position_embeddings: int,
) -> dict[str, Any]:
    """What Qwen2, Qwen3 and Mistral say in the same words, as arguments of `DecoderConfig`.

    The keywords are the defaults of transformers where they differ.
    """
    heads = read_size(config, "num_attention_heads", 32)
    return {
        "vocab_size": read_size(config, "vocab_size", vocab_size),
        "hidden_size": read_size(config, "hidden_size", 4096),
        "intermediate_size": read_size(config, "intermediate_size", intermediate_size),
        "num_attention_heads": heads,
        "num_key_value_heads": read_key_value_heads(config, heads, num_key_value_heads),
        "max_position_embeddings": read_size(config, "max_position_embeddings", max_position_embeddings),
        "rms_norm_eps": read_epsilon(config, "rms_norm_eps", 1e-6),
        "hidden_act": read_activation(config, "hidden_act", "silu"),
        "tie_word_embeddings": read_flag(config, "tie_word_embeddings", default=False),
        "pad_token_id": read_token_id(config, "pad_token_id", None),
    }


def read_key_value_heads(config: Mapping[str, Any], heads: int, default: int) -> int:
    """Heads that keys and values have; null stands for as many as queries have."""
    written = config.get("num_key_value_heads", default)
    count = heads if written is None else read_size(config, "num_key_value_heads", default)
    if heads % count:
        raise CorruptModel(
            f"config.json: num_attention_heads {heads} is not a multiple of num_key_value_heads {count}."
        )
    return count


def read_head_dim(config: Mapping[str, Any], default: int) -> int:
    """Columns of one head, which rotary positions cut in two."""
    size = read_size(config, "head_dim", default)
    if size % 2:
        raise CorruptModel(f"config.json: heads of {size} columns cannot have rotary positions.")
    return size


def read_layer_types(config: Mapping[str, Any], default: Sequence[str]) -> tuple[str, ...]:
    """`FULL` or `SLIDING` for each layer; `default` is as long as there are layers."""
    written = config.get("layer_types")
    if written is None:
        return tuple(default)
    if not isinstance(written, list) or len(written) != len(default):
        raise CorruptModel(f"config.json: layer_types must name one type for each of {len(default)} layers.")
    unknown = sorted({str(kind) for kind in written} - {FULL, SLIDING})
    if unknown:
        raise UnsupportedModel(
            f"config.json: layer_types has {', '.join(unknown)}, which is not supported; supported are "
            f"{FULL} and {SLIDING}."
        )
    return tuple(written)


def read_reaches(config: Mapping[str, Any], window: int | None) -> Mapping[str, Reach]:
    """How far each type of layer sees, as `is_causal` and the sliding window say.

    A causal window counts the token itself, one in both directions does not: transformers 5.23,
    `masking_utils.py`.
    """
    refuse_unless(config, {"use_bidirectional_attention": (False,)})
    causal = read_flag(config, "is_causal", default=True)
    full = CAUSAL if causal else EVERYWHERE
    if window is None:
        return {FULL: full}
    return {FULL: full, SLIDING: Reach(window - 1, 0) if causal else Reach(window, window)}


def lay_layers(
    types: Sequence[str], reaches: Mapping[str, Reach], ropes: Mapping[str, Rope]
) -> tuple[DecoderLayer, ...]:
    """One layer for each of `types`. Raises `CorruptModel` for sliding layers without a window."""
    if not set(types) <= set(reaches):
        raise CorruptModel("config.json: layer_types has sliding_attention, but there is no sliding_window.")
    return tuple(DecoderLayer(reaches[kind], ropes[kind]) for kind in types)
