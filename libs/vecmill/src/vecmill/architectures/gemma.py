"""Reads the `config.json` of Gemma, Gemma 2 and Gemma 3 as language models (text alone), and of T5Gemma."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from vecmill.architectures.decoder import DecoderConfig, DecoderDefaults
from vecmill.models.config_fields import (
    read_flag,
    read_mapping,
    read_number,
    read_size,
    refuse_unless,
)
from vecmill.models.encoder_config import BIDIRECTIONAL, AttentionWindow
from vecmill.models.rope import FULL, SLIDING, Rope, read_rope_by_layer_type

_TANH_GELU = "gelu_pytorch_tanh"


class GemmaConfig(DecoderConfig):
    """The settings of Gemma. As in transformers, the activation "gelu" means its approximation by tanh."""

    graph = "gemma_graph:Gemma"
    defaults = DecoderDefaults(
        vocab_size=256_000,
        hidden_size=3072,
        intermediate_size=24_576,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=16,
        head_dim=256,
        max_position_embeddings=8192,
        hidden_act=_TANH_GELU,
        tie_word_embeddings=True,
        pad_token_id=0,
        allowed={"hidden_activation": (_TANH_GELU,), "layer_types": ()},
    )
    bidirectional_classes = replaced_classes = frozenset({"GemmaBiModel"})

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, as `DecoderConfig.read` describes."""
        gemma = super().read(config)
        return replace(gemma, hidden_act=_TANH_GELU) if gemma.hidden_act == "gelu" else gemma


class Gemma2Config(DecoderConfig):
    """The settings of Gemma 2: a soft cap on attention scores, and a window in every other layer."""

    graph = "gemma_graph:Gemma3"
    # No implementation of attention but transformers' own (`eager`) has soft caps.
    averages_keyless = True
    defaults = DecoderDefaults(
        vocab_size=256_000,
        hidden_size=2304,
        intermediate_size=9216,
        num_hidden_layers=26,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=256,
        max_position_embeddings=8192,
        hidden_act=_TANH_GELU,
        activation_key="hidden_activation",
        query_pre_attn_scalar=256,
        tie_word_embeddings=True,
        pad_token_id=0,
    )

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, as `DecoderConfig.read` describes."""
        return replace(
            super().read(config),
            attn_logit_softcapping=_read_cap(config, "attn_logit_softcapping", 50.0),
            final_logit_softcapping=_read_cap(config, "final_logit_softcapping", 30.0),
        )

    @classmethod
    def _read_window(cls, config: Mapping[str, Any]) -> int:
        return read_size(config, "sliding_window", 4096)

    @classmethod
    def _default_types(cls, config: Mapping[str, Any], count: int, window: int | None) -> Sequence[str]:
        return [FULL if index % 2 else SLIDING for index in range(count)]


class T5GemmaConfig(Gemma2Config):
    """The settings of the encoder of T5Gemma: Gemma 2 in both directions. The decoder is not read."""

    graph = "gemma_graph:T5Gemma"

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, whose `encoder` has the settings of `Gemma2Config`."""
        encoder = read_mapping(config, "encoder")
        refuse_unless(encoder, {"model_type": ("t5_gemma_module",)})
        return super().read(encoder)

    @classmethod
    def _is_causal(cls, config: Mapping[str, Any]) -> bool:
        return False


class Gemma3Config(DecoderConfig):
    """The settings of Gemma 3 (transformers' `Gemma3TextConfig`), with sliding and full attention layers."""

    graph = "gemma_graph:Gemma3"
    defaults = DecoderDefaults(
        vocab_size=262_208,
        hidden_size=2304,
        intermediate_size=9216,
        num_hidden_layers=26,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=256,
        max_position_embeddings=131_072,
        hidden_act="gelu_pytorch_tanh",
        activation_key="hidden_activation",
        query_key_norm=True,
        query_pre_attn_scalar=256,
        tie_word_embeddings=True,
        pad_token_id=0,
        allowed={"attn_logit_softcapping": ()},
    )

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, as `DecoderConfig.read` describes."""
        return replace(
            super().read(config), final_logit_softcapping=_read_cap(config, "final_logit_softcapping", None)
        )

    @classmethod
    def _read_window(cls, config: Mapping[str, Any]) -> int:
        return read_size(config, "sliding_window", 4096)

    @classmethod
    def _default_types(cls, config: Mapping[str, Any], count: int, window: int | None) -> Sequence[str]:
        """Return the types by the period of full attention layers, which only older files have."""
        key = "sliding_window_pattern"
        pattern = read_size(config, key if key in config else f"_{key}", 6)
        return [SLIDING if index % pattern else FULL for index in range(1, count + 1)]

    @classmethod
    def _read_windows(cls, config: Mapping[str, Any], window: int | None) -> Mapping[str, AttentionWindow]:
        """Return the windows; with `use_bidirectional_attention` half of the size is on each side.

        transformers computes `window // 2 + 1` and attends to smaller distances.
        """
        if window is None or not read_flag(config, "use_bidirectional_attention", default=False):
            return super()._read_windows(config, window)
        refuse_unless(config, {"is_causal": (True,)})
        return {FULL: BIDIRECTIONAL, SLIDING: AttentionWindow(window // 2, window // 2)}

    @classmethod
    def _read_ropes(cls, config: Mapping[str, Any], positions: int) -> Mapping[str, Rope | None]:
        thetas = {FULL: ("rope_theta", 1_000_000.0), SLIDING: ("rope_local_base_freq", 10_000.0)}
        return read_rope_by_layer_type(config, thetas=thetas, scaled=(FULL,), positions=positions)


def _read_cap(config: Mapping[str, Any], key: str, default: float | None) -> float | None:
    """Read a soft cap; `None` if the value is null, or if there is none and `default` is `None`."""
    value = config.get(key, default)
    return None if value is None else read_number({key: value}, key, 0)
