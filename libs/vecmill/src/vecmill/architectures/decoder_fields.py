"""Fields of `config.json` that decoders of several families have."""

from collections.abc import Mapping, Sequence
from typing import Any

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import (
    MOST_HEAD_DIM,
    check_rotary_heads,
    head_size,
    read_size,
)
from vecmill.models.rope import FULL, SLIDING
from vecmill.values.messages import not_supported


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
    for kind in types:
        if kind not in (FULL, SLIDING):
            raise UnsupportedModel(not_supported("config.json: layer_types with", kind, (FULL, SLIDING)))
    return tuple(types)


def read_key_value_heads(config: Mapping[str, Any], heads: int, default: int | None) -> int:
    """Read the number of key and value heads; null stands for the number of query heads."""
    is_null = config.get("num_key_value_heads", default) is None
    count = heads if is_null else read_size(config, "num_key_value_heads", default or heads)
    if heads % count:
        raise CorruptModel(
            f"config.json: num_attention_heads {heads} is not a multiple of num_key_value_heads {count}."
        )
    return count


def read_head_dim(config: Mapping[str, Any], default: int | None, hidden_size: int, heads: int) -> int:
    """Read the dimension of one head, which must be even for rotary positions."""
    if default is None and config.get("head_dim") is None:
        default = head_size(hidden_size, heads)
    size = read_size(config, "head_dim", default or 0, most=MOST_HEAD_DIM)
    check_rotary_heads(size, "head_dim or hidden_size and num_attention_heads")
    return size


def read_sliding_window(config: Mapping[str, Any], default: int | None = 4096) -> int | None:
    """Read the size of the sliding window; `None` if the value is null."""
    size = config.get("sliding_window", default)
    return None if size is None else read_size(config, "sliding_window", default or 0)
