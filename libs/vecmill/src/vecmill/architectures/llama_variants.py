"""Reads the `config.json` of language models that differ from Llama in a detail, and of EuroBERT.

Granite (multipliers), Ministral (windows), Ministral 3 (queries that grow with their position), SmolLM3 and
EXAONE 4 (layers without positions), OLMo 2 and 3 and EXAONE 4 (norms after attention and gated unit), Phi-3
(joined weights), Seed-OSS (biases).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from vecmill.architectures.decoder import (
    DecoderConfig,
    DecoderDefaults,
    DecoderLayer,
    LlamaConfig,
    MistralConfig,
)
from vecmill.architectures.decoder_fields import read_sliding_window
from vecmill.errors import CorruptModel
from vecmill.models.config_fields import (
    MOST_TOKENS,
    check_number,
    check_whole_number,
    read_choice,
    read_flag,
    read_mapping,
    read_number,
    read_size,
)
from vecmill.models.rope import FULL, SLIDING, Rope, read_rope, read_rope_by_layer_type

_POOLINGS = ("bos", "late", "mean")


class GraniteConfig(LlamaConfig):
    """The settings of Granite: Llama with multipliers of embeddings, scores, residuals and logits."""

    defaults = DecoderDefaults(
        intermediate_size=11_008, max_position_embeddings=2048, allowed={"layer_types": ()}
    )
    bidirectional_classes = replaced_classes = frozenset()

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, as `DecoderConfig.read` describes."""
        return replace(
            super().read(config),
            attention_scale=read_number(config, "attention_multiplier", 1.0),
            embedding_multiplier=read_number(config, "embedding_multiplier", 1.0),
            residual_multiplier=read_number(config, "residual_multiplier", 1.0),
            logits_scaling=read_number(config, "logits_scaling", 1.0),
        )


class MinistralConfig(MistralConfig):
    """The settings of Ministral: Mistral whose layers may each have a window or none."""

    defaults = replace(MistralConfig.defaults, allowed={"attention_bias": (False,)})
    bidirectional_classes = replaced_classes = frozenset()


@dataclass(frozen=True, slots=True)
class QueryGrowth:
    """The growth of queries: a factor of 1 + `weight` * ln(1 + floor(position / `trained_tokens`)).

    Source: "get_llama_4_attn_scale" of transformers' `modeling_ministral3.py`.
    """

    weight: float
    trained_tokens: int


# What transformers takes for a file without rotary positions.
_MINISTRAL3_ROPE: Mapping[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 1_000_000.0,
    "factor": 16.0,
    "original_max_position_embeddings": 16_384,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale_all_dim": 1.0,
    "mscale": 1.0,
    "llama_4_scaling_beta": 0.1,
}


@dataclass(frozen=True, kw_only=True)
class Ministral3Config(MistralConfig):
    """The settings of Ministral 3: Mistral with scaled positions, whose queries grow with their position.

    Without `query_growth` no query grows.
    """

    graph: ClassVar = "llama_variants_graph:Ministral3"
    defaults: ClassVar = DecoderDefaults(
        vocab_size=131_072,
        intermediate_size=14_336,
        num_hidden_layers=34,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=262_144,
        rms_norm_eps=1e-5,
        pad_token_id=11,
        allowed={"attention_bias": (False,), "layer_types": ()},
    )
    bidirectional_classes: ClassVar = frozenset()
    replaced_classes: ClassVar = frozenset()

    query_growth: QueryGrowth | None = None

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, as `DecoderConfig.read` describes."""
        if not (config.get("rope_scaling") or config.get("rope_parameters") is not None):
            config = {**config, "rope_parameters": _MINISTRAL3_ROPE}
        read = super().read(config)
        return replace(read, query_growth=_read_growth(config, read))

    @classmethod
    def _read_window(cls, config: Mapping[str, Any]) -> int | None:
        return read_sliding_window(config, None)


class SeedOssConfig(LlamaConfig):
    """The settings of Seed-OSS: Llama with a key for the bias of the output projection alone."""

    defaults = DecoderDefaults(
        vocab_size=155_136,
        intermediate_size=27_648,
        num_hidden_layers=64,
        num_attention_heads=80,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=524_288,
        pad_token_id=1,
        allowed={"layer_types": ()},
    )
    bidirectional_classes = replaced_classes = frozenset()

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, as `DecoderConfig.read` describes."""
        return replace(
            super().read(config),
            query_key_value_bias=read_flag(config, "attention_bias", default=True),
            output_bias=read_flag(config, "attention_out_bias", default=False),
        )


class SmolLM3Config(LlamaConfig):
    """The settings of SmolLM3: Llama with layers that have no positions, by default every fourth."""

    defaults = DecoderDefaults(
        vocab_size=128_256,
        hidden_size=2048,
        intermediate_size=11_008,
        num_hidden_layers=36,
        num_attention_heads=16,
        num_key_value_heads=4,
        max_position_embeddings=32_768,
        rope_theta=2_000_000.0,
        tie_word_embeddings=True,
        pad_token_id=128_004,
    )
    bidirectional_classes = replaced_classes = frozenset()

    @classmethod
    def _read_layers(cls, config: Mapping[str, Any], positions: int) -> tuple[DecoderLayer, ...]:
        layers = super()._read_layers(config, positions)
        rotates = cls._read_rotating(config, len(layers))
        return tuple(
            layer if rotated else replace(layer, rope=None)
            for layer, rotated in zip(layers, rotates, strict=True)
        )

    @classmethod
    def _read_rotating(cls, config: Mapping[str, Any], count: int) -> Sequence[bool]:
        """Read which of `count` layers have positions, which is what a 1 in `no_rope_layers` means."""
        values = config.get("no_rope_layers")
        if values is None:
            interval = read_size(config, "no_rope_layer_interval", 4)
            return [(index + 1) % interval != 0 for index in range(count)]
        if not isinstance(values, list) or len(values) != count or not {*map(repr, values)} <= {"0", "1"}:
            raise CorruptModel(
                f"config.json: no_rope_layers must list 0 or 1 for each of the {count} layers."
            )
        return [value == 1 for value in values]

    @classmethod
    def _read_window(cls, config: Mapping[str, Any]) -> int | None:
        is_used = read_flag(config, "use_sliding_window", default=False)
        return read_sliding_window(config, None) if is_used else None

    @classmethod
    def _default_types(cls, config: Mapping[str, Any], count: int, window: int | None) -> Sequence[str]:
        rotates = cls._read_rotating(config, count)
        return [FULL if window is None or rotated else SLIDING for rotated in rotates]


class Olmo2Config(DecoderConfig):
    """The settings of OLMo 2: norms after attention and the gated unit, and norms on all queries and keys."""

    graph = "llama_variants_graph:Olmo2"
    defaults = DecoderDefaults(
        vocab_size=50_304,
        intermediate_size=11_008,
        max_position_embeddings=2048,
        rms_norm_eps=1e-5,
        pad_token_id=1,
        allowed={"layer_types": ()},
    )


class Olmo3Config(DecoderConfig):
    """The settings of OLMo 3: those of OLMo 2, and a window in three of four layers."""

    graph = "llama_variants_graph:Olmo2"
    defaults = replace(
        Olmo2Config.defaults,
        # transformers would use another theta in full layers alone, which is hardly what an author meant.
        allowed={"rope_theta": (500_000,)},
    )

    @classmethod
    def _read_window(cls, config: Mapping[str, Any]) -> int | None:
        return read_sliding_window(config, 4096)

    @classmethod
    def _default_types(cls, config: Mapping[str, Any], count: int, window: int | None) -> Sequence[str]:
        return [SLIDING if index % 4 else FULL for index in range(1, count + 1)]

    @classmethod
    def _read_ropes(cls, config: Mapping[str, Any], positions: int) -> Mapping[str, Rope | None]:
        thetas = dict.fromkeys((FULL, SLIDING), ("rope_theta", 500_000.0))
        return read_rope_by_layer_type(config, thetas=thetas, scaled=(FULL,), positions=positions)


class Exaone4Config(DecoderConfig):
    """The settings of EXAONE 4: norms after attention and the gated unit, and on the heads.

    If there is a window, only layers with the window have positions.
    """

    graph = "llama_variants_graph:NormAfter"
    defaults = DecoderDefaults(
        vocab_size=102_400,
        intermediate_size=16_384,
        num_key_value_heads=32,
        max_position_embeddings=2048,
        query_key_norm=True,
        rms_norm_eps=1e-5,
        allowed={"attention_bias": (False,)},
    )

    @classmethod
    def _read_window(cls, config: Mapping[str, Any]) -> int | None:
        return read_sliding_window(config, 4096)

    @classmethod
    def _default_types(cls, config: Mapping[str, Any], count: int, window: int | None) -> Sequence[str]:
        if window is None or config.get("layer_types") is not None:
            return [FULL] * count
        period = read_size(config, "sliding_window_pattern", 4)
        return [SLIDING if index % period else FULL for index in range(1, count + 1)]

    @classmethod
    def _read_ropes(cls, config: Mapping[str, Any], positions: int) -> Mapping[str, Rope | None]:
        rope = read_rope(config, theta=cls.defaults.rope_theta, positions=positions)
        return {FULL: rope if cls._read_window(config) is None else None, SLIDING: rope}


class Phi3Config(DecoderConfig):
    """The settings of Phi-3: Llama whose projections are stored as joined matrices."""

    graph = "llama_variants_graph:Phi3"
    defaults = DecoderDefaults(
        vocab_size=32_064,
        hidden_size=3072,
        intermediate_size=8192,
        max_position_embeddings=4096,
        rms_norm_eps=1e-5,
        pad_token_id=32_000,
        allowed={"attention_bias": (False,), "layer_types": ()},
    )

    @classmethod
    def _read_window(cls, config: Mapping[str, Any]) -> int | None:
        return read_sliding_window(config, None)

    @classmethod
    def _default_types(cls, config: Mapping[str, Any], count: int, window: int | None) -> Sequence[str]:
        return [FULL if window is None else SLIDING] * count

    @classmethod
    def _read_ropes(cls, config: Mapping[str, Any], positions: int) -> Mapping[str, Rope | None]:
        """Return the rotary positions. Older files call the type "longrope" "su" or "yarn"."""
        names = ("type", "rope_type")
        scaling = {
            key: "longrope" if key in names and value in ("su", "yarn") else value
            for key, value in read_mapping(config, "rope_scaling").items()
        }
        return super()._read_ropes({**config, "rope_scaling": scaling}, positions)


@dataclass(frozen=True, kw_only=True)
class EuroBertConfig(LlamaConfig):
    """The settings of EuroBERT (Boizard et al., 2025): a Llama whose attention is bidirectional.

    EuroBERT was published with code of its own, which names `classifier_pooling` `clf_pooling`.
    """

    graph: ClassVar = "llama_variants_graph:EuroBert"
    defaults: ClassVar = DecoderDefaults(
        vocab_size=128_256,
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=12,
        num_attention_heads=12,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        is_causal=False,
        pad_token_id=128_001,
        allowed={"is_causal": (False,), "is_decoder": (False,), "layer_types": ()},
    )
    bidirectional_classes: ClassVar = frozenset()
    replaced_classes: ClassVar = frozenset(
        {"EuroBertConfig", "EuroBertPreTrainedModel", "EuroBertModel"}
        | {f"EuroBertFor{task}" for task in ("MaskedLM", "SequenceClassification", "TokenClassification")}
    )

    classifier_pooling: str = "late"

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, as `DecoderConfig.read` describes. transformers ignores `clf_pooling`."""
        pooling, known = _read_pooling(config), config.get("classifier_pooling") or "late"
        return replace(super().read(config), classifier_pooling=pooling, is_changed_by_code=pooling != known)


def _read_growth(config: Mapping[str, Any], read: DecoderConfig) -> QueryGrowth | None:
    """Read how queries grow, from the object with the rotary positions. `read` are the other settings."""
    values = read_mapping(config, "rope_scaling") or read_mapping(config, "rope_parameters")
    weight, trained = values.get("llama_4_scaling_beta"), values.get("original_max_position_embeddings")
    rope = read.layers[0].rope
    if rope is not None and rope.scaling is not None:  # as `read_rope` reads the trained positions
        trained = config.get("original_max_position_embeddings") or trained or read.max_position_embeddings
    if weight is None or trained is None:
        raise CorruptModel(
            "config.json: rope_parameters must have llama_4_scaling_beta and "
            "original_max_position_embeddings."
        )
    trained = check_whole_number(
        trained, "config.json: original_max_position_embeddings", least=2, most=MOST_TOKENS
    )
    if type(weight) in (int, float) and weight == 0:
        return None
    return QueryGrowth(check_number(weight, "config.json: llama_4_scaling_beta"), trained)


def _read_pooling(config: Mapping[str, Any]) -> str:
    """Read how a sequence head of EuroBERT pools, under either name."""
    published = read_choice(config, "clf_pooling", _POOLINGS)
    found = read_choice(config, "classifier_pooling", _POOLINGS, published or "late")
    if published not in (None, found):
        raise CorruptModel("config.json: clf_pooling and classifier_pooling have different values.")
    return str(found)
