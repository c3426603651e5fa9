"""Reads the `config.json` of EmbeddingGemma 2, for texts alone, and of its text model by itself.

Layers with full attention have heads of other sizes than layers with a window. Each layer is also gated by a
signal of its own from the word embeddings, and the output is projected to `embedding_dim` dimensions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from vecmill.architectures.decoder import DecoderConfig, DecoderDefaults, DecoderLayer, HeadShape
from vecmill.architectures.decoder_fields import read_head_dim, read_key_value_heads
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import (
    MOST_LAYERS,
    read_mapping,
    read_size,
    read_token_id,
    refuse_unless,
)
from vecmill.models.rope import FULL, SLIDING, Rope, read_rope_by_layer_type
from vecmill.values.messages import show_name

_OWN_KEYS = "per_layer_config"
_CHANGES = ("head_dim", "num_key_value_heads")
_WHERE = f"config.json: {_OWN_KEYS}"


@dataclass(frozen=True, slots=True)
class ShapedLayer(DecoderLayer):
    """The settings of a layer with heads of its own."""

    heads: HeadShape


@dataclass(frozen=True, kw_only=True)
class EmbeddingGemma2Config(DecoderConfig):
    """The settings of EmbeddingGemma 2's text model. `signal_size` is the width of a layer's own signal."""

    graph: ClassVar = "embedding_gemma2_graph:EmbeddingGemma2"
    defaults: ClassVar = DecoderDefaults(
        vocab_size=262_144,
        hidden_size=512,
        intermediate_size=2048,
        num_hidden_layers=24,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=256,
        max_position_embeddings=262_144,
        hidden_act="gelu_pytorch_tanh",
        activation_key="hidden_activation",
        is_causal=False,
        query_key_norm=True,
        tie_word_embeddings=True,
        pad_token_id=0,
        # transformers reads none of these, which is hardly what an author meant.
        allowed={
            "is_causal": (False,),
            "use_bidirectional_attention": (True,),
            "rope_theta": (),
            "rope_local_base_freq": (),
            "rope_scaling": (),
        },
    )

    signal_size: int = 1

    def find_heads(self, layer: DecoderLayer) -> HeadShape:
        """Return the heads of one of `layers`."""
        return layer.heads if isinstance(layer, ShapedLayer) else super().find_heads(layer)

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, as `DecoderConfig.read` describes."""
        return replace(
            super().read(config),
            attention_scale=1.0,
            projection_size=read_size(config, "embedding_dim", 768),
            signal_size=read_size(config, "hidden_size_per_layer_input", 512),
        )

    @classmethod
    def _read_layers(cls, config: Mapping[str, Any], positions: int) -> tuple[DecoderLayer, ...]:
        types = config.get("layer_types")
        if isinstance(types, list) and types:  # transformers has full attention in the last layer
            config = {**config, "layer_types": [*types[:-1], FULL]}
        layers = super()._read_layers(config, positions)
        own = _read_own_settings(config, layers)
        return tuple(
            ShapedLayer(layer.window, layer.rope, _read_heads({**config, **own.get(index, {})}))
            for index, layer in enumerate(layers)
        )

    @classmethod
    def _read_window(cls, config: Mapping[str, Any]) -> int | None:
        return read_size(config, "sliding_window", 512)

    @classmethod
    def _default_types(cls, config: Mapping[str, Any], count: int, window: int | None) -> Sequence[str]:
        period = read_size(config, "sliding_window_pattern", 6)
        types = [SLIDING if index % period else FULL for index in range(1, count + 1)]
        return [*types[:-1], FULL]

    @classmethod
    def _is_causal(cls, config: Mapping[str, Any]) -> bool:
        return False

    @classmethod
    def _read_ropes(cls, config: Mapping[str, Any], positions: int) -> Mapping[str, Rope | None]:
        thetas = {FULL: ("rope_theta", 1_000_000.0), SLIDING: ("rope_local_base_freq", 10_000.0)}
        return read_rope_by_layer_type(config, thetas=thetas, scaled=(), positions=positions)


_PLACE_KEYS = {"image_token_id": 258_880, "video_token_id": 258_884, "audio_token_id": 258_881}


@dataclass(frozen=True, kw_only=True)
class ComposedGemma2Config(EmbeddingGemma2Config):
    """The settings of EmbeddingGemma 2 as published: a text model between models of images and sound.

    `places` are the tokens that stand for images and sound. In a text they are read as padding tokens.
    """

    graph: ClassVar = "embedding_gemma2_graph:ComposedGemma2"
    reads_more: ClassVar = True

    places: tuple[int, ...] = ()

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, whose `text_config` has the settings of `EmbeddingGemma2Config`."""
        text = read_mapping(config, "text_config")
        refuse_unless(text, {"model_type": ("embedding_gemma2_text",)})
        places = (read_token_id(config, key, default) for key, default in _PLACE_KEYS.items())
        read = replace(super().read(text), places=tuple(token for token in places if token is not None))
        if read.pad_token_id is None or not 0 <= read.pad_token_id < read.vocab_size:
            raise CorruptModel("config.json: text_config.pad_token_id must be a token of the vocabulary.")
        return read


def _read_heads(config: Mapping[str, Any]) -> HeadShape:
    """Read the heads of a layer from the settings of the model, changed by those of the layer."""
    defaults = EmbeddingGemma2Config.defaults
    hidden = read_size(config, "hidden_size", defaults.hidden_size)
    count = read_size(config, "num_attention_heads", defaults.num_attention_heads)
    shared = read_key_value_heads(config, count, defaults.num_key_value_heads)
    return HeadShape(count, shared, read_head_dim(config, defaults.head_dim, hidden, count))


def _read_own_settings(
    config: Mapping[str, Any], layers: Sequence[DecoderLayer]
) -> Mapping[int, Mapping[str, Any]]:
    """Read what differs in a layer, by its number. A file without it has two sizes for full attention."""
    if _OWN_KEYS not in config:
        wide = {
            "head_dim": read_size(config, "global_head_dim", 512),
            "num_key_value_heads": read_size(config, "num_global_key_value_heads", 1),
        }
        return {index: wide for index, layer in enumerate(layers) if layer.window.before is None}
    found = read_mapping(config, _OWN_KEYS)
    if len(found) > MOST_LAYERS:
        raise CorruptModel(f"{_WHERE} has more than {MOST_LAYERS} layers.")
    return {_read_number(key, len(layers)): _read_changes(found, key) for key in found}


def _read_number(key: str, count: int) -> int:
    """Return the number of a layer, which transformers writes with zeros before it."""
    if not (key.isascii() and key.isdecimal() and len(key) < len(str(MOST_LAYERS)) + 1 and int(key) < count):
        raise CorruptModel(f"{_WHERE}.{show_name(key)} is not the number of one of the {count} layers.")
    return int(key)


def _read_changes(found: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    changes = read_mapping(found, key, file=_WHERE)
    others = sorted(set(changes) - set(_CHANGES))
    if others:
        raise UnsupportedModel(
            f"{_WHERE}.{key}.{show_name(others[0])} is not supported; supported: {', '.join(_CHANGES)}."
        )
    return changes
