"""Reads the `config.json` of decoder-only language models: Llama, Mistral, Qwen2 and Qwen3.

They have rotary positions, root-mean-square norms, gated linear units and grouped query attention. One reader
reads all of them. `DecoderDefaults` has what differs; a class overrides a method for a key that only its
architecture has.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from vecmill.architectures.decoder_fields import (
    read_head_dim,
    read_key_value_heads,
    read_layer_types,
    read_sliding_window,
)
from vecmill.errors import CorruptModel
from vecmill.models.config_fields import (
    MOST_LAYERS,
    MOST_TOKENS,
    read_activation,
    read_epsilon,
    read_flag,
    read_mapping,
    read_number,
    read_size,
    read_token_id,
    refuse_unless,
)
from vecmill.models.encoder_config import BIDIRECTIONAL, CAUSAL, AttentionWindow, EncoderConfig
from vecmill.models.published_code import names_any
from vecmill.models.rope import FULL, SLIDING, LongScaling, Rope, read_rope
from vecmill.models.tied_tensors import Tie


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """The settings that differ between the layers of one model. Without `rope` a layer has no positions."""

    window: AttentionWindow
    rope: Rope | None


@dataclass(frozen=True, slots=True)
class HeadShape:
    """The attention heads of a layer: their `count`, that of keys and values (`shared`), and dimensions."""

    count: int
    shared: int
    dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderDefaults:
    """The defaults of transformers for the keys of a `config.json`, and what no key says.

    Keys of the same name are read, except these:

    num_key_value_heads     by default `None`, the number of query heads
    head_dim                by default `None`, `hidden_size` divided by the number of query heads
    hidden_act              the key is `activation_key`
    query_key_value_bias    no key: if true only queries, keys and values have biases; if false the key
                            `attention_bias` says whether all projections of attention do
    query_key_norm          no key: whether heads are normalised before rotation
    query_pre_attn_scalar   by default `None`, the dimension of a head, and there is no key
    allowed                 no default: the supported values of further keys
    """

    vocab_size: int = 32_000
    hidden_size: int = 4096
    intermediate_size: int
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    max_position_embeddings: int
    rms_norm_eps: float = 1e-6
    hidden_act: str = "silu"
    activation_key: str = "hidden_act"
    rope_theta: float = 10_000.0
    is_causal: bool = True
    query_key_value_bias: bool = False
    query_key_norm: bool = False
    query_pre_attn_scalar: float | None = None
    tie_word_embeddings: bool = False
    pad_token_id: int | None = None
    allowed: Mapping[str, tuple[Any, ...]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig(EncoderConfig):
    """The settings of a decoder graph, named as in transformers where possible.

    With `query_key_norm` heads are normalised before rotation. Sequence classification skips `pad_token_id`
    at the end of a text. `projection_size` is the width of a projection of the encoder's output, if there is
    one. Logits of the vocabulary are divided by `logits_scaling`. `is_changed_by_code` says that the file has
    something that changes the model, and that only published code reads.
    """

    graph: ClassVar = "decoder_graph:Decoder"
    defaults: ClassVar[DecoderDefaults]
    # Published classes that attend in both directions, although no key says so.
    bidirectional_classes: ClassVar[frozenset[str]] = frozenset()

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
    mlp_bias: bool = False
    query_key_norm: bool
    tie_word_embeddings: bool
    pad_token_id: int | None
    attn_logit_softcapping: float | None = None
    final_logit_softcapping: float | None = None
    embedding_multiplier: float = 1.0
    residual_multiplier: float = 1.0
    logits_scaling: float = 1.0
    projection_size: int | None = None
    is_changed_by_code: bool = False

    @property
    def output_size(self) -> int:
        """The width of the projection, if there is one."""
        return self.hidden_size if self.projection_size is None else self.projection_size

    @property
    def max_input_tokens(self) -> int:
        """The number of positions of the model."""
        return self.max_position_embeddings

    @property
    def limits_input(self) -> bool:
        """Whether no setting exceeds `max_input_tokens`: positions are rotary, so it is not so."""
        return False

    @property
    def is_causal(self) -> bool:
        """Whether no layer attends to later tokens, and positions do not depend on the length of the text."""
        return all(
            layer.window.after == 0
            and (layer.rope is None or not isinstance(layer.rope.scaling, LongScaling))
            for layer in self.layers
        )

    @property
    def windows(self) -> frozenset[AttentionWindow]:
        """The windows of the layers."""
        return frozenset(layer.window for layer in self.layers)

    @property
    def ties(self) -> tuple[Tie, ...]:
        """The output weights of a language model's head, and the word embeddings."""
        is_tied = self.tie_word_embeddings
        return (Tie("lm_head.weight", "embed_tokens.weight", "model."),) if is_tied else ()

    @property
    def is_in_transformers(self) -> bool:
        """Whether transformers, which runs no published code here, computes the same model."""
        return not self.is_changed_by_code

    def find_heads(self, layer: DecoderLayer) -> HeadShape:
        """Return the heads of one of `layers`."""
        return HeadShape(self.num_attention_heads, self.num_key_value_heads, self.head_dim)

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, with the defaults of transformers.

        Raises the same errors as `BertConfig.read`.
        """
        default = cls.defaults
        refuse_unless(config, default.allowed or {})
        hidden_size = read_size(config, "hidden_size", default.hidden_size)
        heads = read_size(config, "num_attention_heads", default.num_attention_heads)
        head_dim = read_head_dim(config, default.head_dim, hidden_size, heads)
        scale = default.query_pre_attn_scalar
        positions = read_size(
            config, "max_position_embeddings", default.max_position_embeddings, most=MOST_TOKENS
        )
        bias = not default.query_key_value_bias and read_flag(config, "attention_bias", default=False)
        return cls(
            vocab_size=read_size(config, "vocab_size", default.vocab_size),
            hidden_size=hidden_size,
            intermediate_size=read_size(config, "intermediate_size", default.intermediate_size),
            num_attention_heads=heads,
            num_key_value_heads=read_key_value_heads(config, heads, default.num_key_value_heads),
            head_dim=head_dim,
            layers=cls._read_layers(config, positions),
            max_position_embeddings=positions,
            rms_norm_eps=read_epsilon(config, "rms_norm_eps", default.rms_norm_eps),
            hidden_act=read_activation(config, default.activation_key, default.hidden_act),
            attention_scale=(
                head_dim if scale is None else read_number(config, "query_pre_attn_scalar", scale)
            )
            ** -0.5,
            query_key_value_bias=bias or default.query_key_value_bias,
            output_bias=bias,
            query_key_norm=default.query_key_norm,
            tie_word_embeddings=read_flag(config, "tie_word_embeddings", default=default.tie_word_embeddings),
            pad_token_id=read_token_id(config, "pad_token_id", default.pad_token_id),
            is_changed_by_code=names_any(cls.bidirectional_classes, config),
        )

    @classmethod
    def _read_layers(cls, config: Mapping[str, Any], positions: int) -> tuple[DecoderLayer, ...]:
        count = read_size(config, "num_hidden_layers", cls.defaults.num_hidden_layers, most=MOST_LAYERS)
        window = cls._read_window(config)
        types = read_layer_types(config, cls._default_types(config, count, window))
        return make_layers(types, cls._read_windows(config, window), cls._read_ropes(config, positions))

    @classmethod
    def _read_window(cls, config: Mapping[str, Any]) -> int | None:
        """Read the size of the sliding window; `None` if there is none."""
        return None

    @classmethod
    def _default_types(cls, config: Mapping[str, Any], count: int, window: int | None) -> Sequence[str]:
        """Return `FULL` or `SLIDING` for each of `count` layers, for a file without `layer_types`."""
        return [FULL] * count

    @classmethod
    def _read_windows(cls, config: Mapping[str, Any], window: int | None) -> Mapping[str, AttentionWindow]:
        """Return the attention window of each type of layer, by `is_causal` and the sliding `window`.

        The size of a causal window includes the token itself. The size of a bidirectional window does not.
        Source: transformers 5.23, `masking_utils.py`.
        """
        causal = cls._is_causal(config)
        full = CAUSAL if causal else BIDIRECTIONAL
        if window is None:
            return {FULL: full}
        return {
            FULL: full,
            SLIDING: AttentionWindow(window - 1, 0) if causal else AttentionWindow(window, window),
        }

    @classmethod
    def _is_causal(cls, config: Mapping[str, Any]) -> bool:
        """Return whether tokens attend to earlier tokens alone: by the published class, or by `is_causal`.

        Raises `UnsupportedModel` if the class and the key contradict each other.
        """
        refuse_unless(config, {"use_bidirectional_attention": (False,)})
        if names_any(cls.bidirectional_classes, config):
            refuse_unless(config, {"is_causal": (False,)}, by="the class in auto_map or architectures")
            return False
        return read_flag(config, "is_causal", default=cls.defaults.is_causal)

    @classmethod
    def _read_ropes(cls, config: Mapping[str, Any], positions: int) -> Mapping[str, Rope | None]:
        """Return the rotary positions of each type of layer; `positions` is the longest input."""
        rope = read_rope(config, theta=cls.defaults.rope_theta, positions=positions)
        return {FULL: rope, SLIDING: rope}


LISTWISE_WIDTH = 512
"""The width of the vectors that jina-reranker-v3 compares."""

JINA_LISTWISE = frozenset({"JinaForRanking"})
_VOYAGE = frozenset({"VoyageQwen3BidirectionalEmbedModel"})


class LlamaConfig(DecoderConfig):
    """The settings of Llama. Attention is bidirectional with an `is_causal` of false.

    The encoders of LLM2Vec (BehnamGhader et al., 2024) are bidirectional too: `LlamaEncoderModel` in their
    published code, `LlamaBiModel` in their package.
    """

    bidirectional_classes = replaced_classes = frozenset({"LlamaEncoderModel", "LlamaBiModel"})
    defaults = DecoderDefaults(
        intermediate_size=11_008, max_position_embeddings=2048, allowed={"layer_types": ()}
    )

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, as `DecoderConfig.read` describes."""
        return replace(super().read(config), mlp_bias=read_flag(config, "mlp_bias", default=False))


class MistralConfig(DecoderConfig):
    """The settings of Mistral: no biases, and a sliding window for all layers or none.

    The encoders of LLM2Vec are bidirectional, as for Llama.
    """

    bidirectional_classes = replaced_classes = frozenset({"MistralEncoderModel", "MistralBiModel"})
    defaults = DecoderDefaults(
        intermediate_size=14_336,
        num_key_value_heads=8,
        max_position_embeddings=131_072,
        allowed={"attention_bias": (False,), "layer_types": ()},
    )

    @classmethod
    def _read_window(cls, config: Mapping[str, Any]) -> int | None:
        return read_sliding_window(config)

    @classmethod
    def _default_types(cls, config: Mapping[str, Any], count: int, window: int | None) -> Sequence[str]:
        return [FULL if window is None else SLIDING] * count


class Qwen2Config(DecoderConfig):
    """The settings of Qwen2: biases on queries, keys and values alone, and optionally a sliding window.

    The code that gte-Qwen2 and stella_en_1.5B_v5 came with (`modeling_qwen`) is Qwen2 in both directions, and
    so are the encoders of LLM2Vec.
    """

    bidirectional_classes = frozenset({"modeling_qwen.Qwen2Model", "Qwen2BiModel"})
    replaced_classes = bidirectional_classes | {
        "modeling_qwen.Qwen2ForCausalLM",
        "modeling_qwen.Qwen2ForSequenceClassification",
    }
    defaults = DecoderDefaults(
        vocab_size=151_936,
        intermediate_size=22_016,
        num_key_value_heads=32,
        max_position_embeddings=32_768,
        query_key_value_bias=True,
    )

    @classmethod
    def _read_window(cls, config: Mapping[str, Any]) -> int | None:
        is_used = read_flag(config, "use_sliding_window", default=False)
        return read_sliding_window(config) if is_used else None

    @classmethod
    def _default_types(cls, config: Mapping[str, Any], count: int, window: int | None) -> Sequence[str]:
        """Return `FULL` for the first `max_window_layers` layers, which may be none."""
        if window is None:
            return [FULL] * count
        full = 0 if config.get("max_window_layers") == 0 else read_size(config, "max_window_layers", 28)
        return [FULL if index < full else SLIDING for index in range(count)]


class Qwen3Config(Qwen2Config):
    """The settings of Qwen3: those of Qwen2, with norms on the heads of queries and keys.

    voyage-4-nano (`VoyageQwen3BidirectionalEmbedModel`) attends in both directions, and its output is
    projected to `num_labels` dimensions. Source: `voyage.py` of vLLM. The class that came with zerank-1 is
    Qwen3's own. That of jina-reranker-v3 is Qwen3 with another head.
    """

    judges_pairs = True
    bidirectional_classes = _VOYAGE
    replaced_classes = _VOYAGE | JINA_LISTWISE | {"modeling_zeranker.ZEConfig"}
    defaults = replace(Qwen2Config.defaults, head_dim=128, query_key_value_bias=False, query_key_norm=True)

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, as `DecoderConfig.read` describes."""
        width = _count_labels(config) if names_any(_VOYAGE, config) else None
        read = replace(super().read(config), projection_size=width)
        return replace(read, is_changed_by_code=read.is_changed_by_code or names_any(JINA_LISTWISE, config))


def make_layers(
    types: Sequence[str], windows: Mapping[str, AttentionWindow], ropes: Mapping[str, Rope | None]
) -> tuple[DecoderLayer, ...]:
    """Return one layer for each of `types`. Raises `CorruptModel` for sliding layers without a window."""
    if not set(types) <= set(windows):
        raise CorruptModel("config.json: layer_types has sliding_attention, but there is no sliding_window.")
    return tuple(DecoderLayer(windows[kind], ropes[kind]) for kind in types)


def _count_labels(config: Mapping[str, Any]) -> int:
    """Read the number of labels as transformers does: `num_labels`, else the entries of `id2label`."""
    return read_size(config, "num_labels", len(read_mapping(config, "id2label")) or 2)
