"""Reads the `config.json` of LFM2: layers with short convolutions, and layers with attention.

Older files have other names for some keys. The code that LFM2.5's embedders came with
(`Lfm2BidirectionalModel`) attends in both directions, and its convolutions look ahead as far as back.

Sources: transformers 5.23, `models/lfm2`; "LFM2 Technical Report", arXiv 2511.23404; for the other direction
https://www.liquid.ai/blog/lfm2-5-retrievers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from vecmill.architectures.decoder import DecoderConfig, DecoderDefaults, DecoderLayer
from vecmill.errors import CorruptModel
from vecmill.models.config_fields import (
    MOST_LAYERS,
    MOST_SIZE,
    check_whole_number,
    read_epsilon,
    read_flag,
    read_number,
    read_size,
)
from vecmill.models.published_code import names_any
from vecmill.models.rope import FULL

_CONVOLUTION = "conv"
_MOST_TAPS = 64  # of a kernel; each is a part of the graph


@dataclass(frozen=True, slots=True)
class Convolutions:
    """The convolutions of the layers `layers`, with kernels of `taps` tokens.

    A kernel ends at its own token, or is `centred` on it. With `bias` all their weights have biases.
    """

    layers: frozenset[int]
    taps: int
    bias: bool
    centred: bool

    @property
    def distances(self) -> tuple[int, ...]:
        """The distance of each tap's token from the own token: 0, negative for earlier tokens."""
        first = -(self.taps // 2) if self.centred else 1 - self.taps
        return tuple(range(first, first + self.taps))


@dataclass(frozen=True, kw_only=True)
class Lfm2Config(DecoderConfig):
    """The settings of LFM2. `layers` have attention, except those in `convolutions`."""

    graph: ClassVar = "lfm2_graph:Lfm2"
    bidirectional_classes: ClassVar = frozenset({"Lfm2BidirectionalModel", "Lfm2BidirectionalForMaskedLM"})
    replaced_classes: ClassVar = bidirectional_classes | {"Lfm2BidirectionalConfig"}
    defaults: ClassVar = DecoderDefaults(
        vocab_size=65_536,
        hidden_size=2560,
        intermediate_size=12_288,
        num_key_value_heads=8,
        max_position_embeddings=128_000,
        rms_norm_eps=1e-5,
        rope_theta=1_000_000.0,
        query_key_norm=True,
        tie_word_embeddings=True,
        pad_token_id=0,
    )

    convolutions: Convolutions = Convolutions(frozenset(), taps=1, bias=False, centred=False)

    @property
    def is_causal(self) -> bool:
        """Whether neither attention nor convolutions look ahead."""
        return super().is_causal and not self.convolutions.centred

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, as `DecoderConfig.read` describes."""
        is_tied = read_flag(config, "tie_word_embeddings", default=cls.defaults.tie_word_embeddings)
        named = {
            **config,
            "attention_bias": False,
            "hidden_act": cls.defaults.hidden_act,
            "intermediate_size": _read_inner_size(config, cls.defaults.intermediate_size),
            "rms_norm_eps": read_epsilon(config, "norm_eps", cls.defaults.rms_norm_eps),
            "tie_word_embeddings": read_flag(config, "tie_embedding", default=is_tied),
        }
        read = super().read(named)
        convolutions = Convolutions(
            layers=_read_convolutional(config, len(read.layers)),
            taps=read_size(config, "conv_L_cache", 3, most=_MOST_TAPS),
            bias=read_flag(config, "conv_bias", default=False),
            centred=names_any(cls.bidirectional_classes, config),
        )
        return replace(read, convolutions=convolutions)

    @classmethod
    def _read_layers(cls, config: Mapping[str, Any], positions: int) -> tuple[DecoderLayer, ...]:
        types = config.get("layer_types")
        if isinstance(types, list):
            types = [FULL if kind == _CONVOLUTION else kind for kind in types]
        return super()._read_layers({**config, "layer_types": types}, positions)


def _read_convolutional(config: Mapping[str, Any], count: int) -> frozenset[int]:
    """Read which of `count` layers have a convolution instead of attention."""
    types, attending = config.get("layer_types"), config.get("full_attn_idxs")
    if types is not None:  # checked by `_read_layers`
        return frozenset(index for index, kind in enumerate(types) if kind == _CONVOLUTION)
    if attending is None:
        return frozenset()
    if not isinstance(attending, list) or len(attending) > MOST_LAYERS:
        raise CorruptModel(
            f"config.json: full_attn_idxs must list the numbers of at most {MOST_LAYERS} layers."
        )
    numbers = {check_whole_number(value, "config.json: full_attn_idxs[]", least=0) for value in attending}
    return frozenset(range(count)) - numbers


def _read_inner_size(config: Mapping[str, Any], default: int) -> int:
    """Return the width of the gated units: two thirds of the key's, rounded up, unless told otherwise."""
    size = read_size(config, "block_ff_dim", read_size(config, "intermediate_size", default))
    if not read_flag(config, "block_auto_adjust_ff_dim", default=True):
        return size
    size = int(2 * size / 3)
    if config.get("block_ffn_dim_multiplier", 1.0) is not None:
        multiple = read_size(config, "block_multiple_of", 256)
        size = int(read_number(config, "block_ffn_dim_multiplier", 1.0) * size)
        size = multiple * ((size + multiple - 1) // multiple)
    return check_whole_number(size, "config.json: the width of the gated units", most=MOST_SIZE)
