"""Reads the `config.json` of ModernBERT."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from vecmill.architectures.decoder import DecoderLayer, make_layers
from vecmill.architectures.decoder_fields import read_layer_types
from vecmill.models.config_fields import (
    MOST_LAYERS,
    activation,
    epsilon,
    flag,
    head_size,
    read_choice,
    read_fields,
    read_size,
    refuse_unless,
    size,
)
from vecmill.models.encoder_config import BIDIRECTIONAL, AttentionWindow, EncoderConfig
from vecmill.models.rope import FULL, SLIDING, read_rope_by_layer_type
from vecmill.models.tied_tensors import Tie

_THETAS = {FULL: ("global_rope_theta", 160_000.0), SLIDING: ("local_rope_theta", 10_000.0)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModernBertConfig(EncoderConfig):
    """The settings of a ModernBERT graph, named as in transformers' `ModernBertConfig`."""

    graph: ClassVar = "modernbert_graph:ModernBert"

    vocab_size: int = size(50_368)
    hidden_size: int = size(768)
    intermediate_size: int = size(1152)
    num_attention_heads: int = size(12)
    head_dim: int
    layers: tuple[DecoderLayer, ...]
    max_position_embeddings: int = size(8192)
    norm_eps: float = epsilon(1e-5)
    norm_bias: bool = flag(False)
    attention_bias: bool = flag(False)
    mlp_bias: bool = flag(False)
    hidden_activation: str = activation("gelu")
    classifier_pooling: str
    classifier_bias: bool = flag(False)
    classifier_activation: str = activation("gelu")
    decoder_bias: bool = flag(True)
    tie_word_embeddings: bool = flag(True)

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, with the defaults of transformers.

        Raises the same errors as `BertConfig.read`.
        """
        found = read_fields(cls, config, classifier_pooling=_read_pooling(config))
        head_dim = head_size(found["hidden_size"], found["num_attention_heads"])
        refuse_unless(config, {"head_dim": (head_dim,)}, by="hidden_size and num_attention_heads")
        layers = _read_layers(config, found["max_position_embeddings"])
        return cls(**found, head_dim=head_dim, layers=layers)

    @property
    def max_input_tokens(self) -> int:
        """The number of positions of the model."""
        return self.max_position_embeddings

    @property
    def windows(self) -> frozenset[AttentionWindow]:
        """The windows of the layers."""
        return frozenset(layer.window for layer in self.layers)

    @property
    def limits_input(self) -> bool:
        """Whether no setting exceeds `max_input_tokens`: positions are rotary, so it is not so."""
        return False

    @property
    def ties(self) -> tuple[Tie, ...]:
        """The decoder of a language model's head, and the word embeddings."""
        if not self.tie_word_embeddings:
            return ()
        return (Tie("decoder.weight", "embeddings.tok_embeddings.weight", "model."),)


def _read_layers(config: Mapping[str, Any], positions: int) -> tuple[DecoderLayer, ...]:
    count = read_size(config, "num_hidden_layers", 22, most=MOST_LAYERS)
    period = read_size(config, "global_attn_every_n_layers", 3)
    types = read_layer_types(config, [SLIDING if index % period else FULL for index in range(count)])
    # `local_attention` is the size of the whole window: half on each side, without the token itself.
    half = read_size(config, "local_attention", 128) // 2
    refuse_unless(config, {"sliding_window": (half,)})  # takes precedence in transformers
    ropes = read_rope_by_layer_type(config, thetas=_THETAS, scaled=(FULL, SLIDING), positions=positions)
    return make_layers(types, {FULL: BIDIRECTIONAL, SLIDING: AttentionWindow(half, half)}, ropes)


def _read_pooling(config: Mapping[str, Any]) -> str:
    return str(read_choice(config, "classifier_pooling", ("cls", "mean"), "cls"))
