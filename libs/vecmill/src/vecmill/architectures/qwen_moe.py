"""Reads the `config.json` of Qwen3 with mixtures of experts (transformers' `Qwen3MoeConfig`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from vecmill.architectures.decoder import DecoderConfig, DecoderDefaults
from vecmill.architectures.decoder_fields import read_sliding_window
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import MOST_LAYERS, check_whole_number, read_flag, read_size
from vecmill.models.rope import FULL, SLIDING

# Of a layer, and of a model; each is a part of the graph.
_MOST_EXPERTS, _MOST_IN_ALL = 512, 2**14
# transformers has the first name in its class and writes the second.
_COUNT_KEYS = ("num_local_experts", "num_experts")


@dataclass(frozen=True, slots=True)
class RoutedExperts:
    """The experts of a layer: `chosen` of `count` for each token, gated units of `width`.

    With `normalised` the shares of the chosen experts are scaled to a sum of 1. `layers` have experts.
    """

    count: int
    chosen: int
    width: int
    normalised: bool
    layers: frozenset[int]


@dataclass(frozen=True, kw_only=True)
class Qwen3MoeConfig(DecoderConfig):
    """The settings of Qwen3 with experts. A window applies to all layers or none."""

    graph: ClassVar = "qwen_moe_graph:Qwen3Moe"
    defaults: ClassVar = DecoderDefaults(
        vocab_size=151_936,
        hidden_size=2048,
        intermediate_size=6144,
        num_hidden_layers=24,
        num_key_value_heads=4,
        max_position_embeddings=32_768,
        query_key_norm=True,
        allowed={"layer_types": ()},
    )

    experts: RoutedExperts | None = None

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, as `DecoderConfig.read` describes."""
        read = super().read(config)
        return replace(read, experts=_read_experts(config, len(read.layers)))

    @classmethod
    def _read_window(cls, config: Mapping[str, Any]) -> int | None:
        is_used = read_flag(config, "use_sliding_window", default=False)
        return read_sliding_window(config) if is_used else None

    @classmethod
    def _default_types(cls, config: Mapping[str, Any], count: int, window: int | None) -> Sequence[str]:
        return [FULL if window is None else SLIDING] * count


def _read_experts(config: Mapping[str, Any], layers: int) -> RoutedExperts | None:
    """Read the settings of experts, `None` if none of the `layers` has any."""
    key = next((name for name in _COUNT_KEYS if config.get(name) is not None), _COUNT_KEYS[1])
    if any(config.get(name, config.get(key)) != config.get(key) for name in _COUNT_KEYS):
        raise CorruptModel(f"config.json: {' and '.join(_COUNT_KEYS)} have different values.")
    count = read_size(config, key, 128, least=0, most=_MOST_EXPERTS)
    period = read_size(config, "decoder_sparse_step", 1)
    dense = _read_dense_layers(config)
    mixed = frozenset(index for index in range(layers) if index not in dense and (index + 1) % period == 0)
    if not count or not mixed:
        return None
    if count * len(mixed) > _MOST_IN_ALL:
        raise UnsupportedModel(
            f"config.json: {key} {count} in {len(mixed)} layers are {count * len(mixed)} experts; at most "
            f"{_MOST_IN_ALL} are supported."
        )
    chosen = read_size(config, "num_experts_per_tok", 8)
    if chosen > count:
        raise CorruptModel(f"config.json: num_experts_per_tok {chosen} is more than the {count} experts.")
    width = read_size(config, "moe_intermediate_size", 768)
    normalised = read_flag(config, "norm_topk_prob", default=False)
    return RoutedExperts(count, chosen, width, normalised, mixed)


def _read_dense_layers(config: Mapping[str, Any]) -> frozenset[int]:
    """Read the layers without experts."""
    key, values = "mlp_only_layers", config.get("mlp_only_layers")
    if values is None:
        return frozenset()
    if not isinstance(values, list) or len(values) > MOST_LAYERS:
        raise CorruptModel(f"config.json: {key} must list the numbers of at most {MOST_LAYERS} layers.")
    return frozenset(check_whole_number(value, f"config.json: {key}[]", least=0) for value in values)
