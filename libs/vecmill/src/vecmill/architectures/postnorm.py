"""The base class of post-norm encoders, which normalise after each residual as BERT does, and their heads.

These architectures differ in embeddings, attention biases and the names of tensors. A subclass defines the
names as `LayerNames`, `SequenceHead` and `VocabularyHead`, and overrides methods for the other differences:

    embed           the input of the first layer, (positions, hidden_size)
    positions       the index of each token in the position embeddings
    attention_bias  the mask and other biases of attention scores
    layer_name      the prefix of a layer's tensors; layers may share tensors
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import onnx_ir as ir

from vecmill.architectures.bert.config import BertConfig
from vecmill.graphs.activations import activate
from vecmill.graphs.batch_layout import Heads
from vecmill.graphs.encoder import EncoderGraph
from vecmill.graphs.softmax_attention import AttentionBias, Projection
from vecmill.models.weights import concatenate

BertLike = TypeVar("BertLike", bound=BertConfig)


@dataclass(frozen=True, slots=True)
class LayerNames:
    """The names of one layer's tensors, after the layer's prefix."""

    query: str
    key: str
    value: str
    attended: str
    attended_norm: str
    inner: str
    outer: str
    outer_norm: str


@dataclass(frozen=True, slots=True)
class SequenceHead:
    """A sequence classification head: `dense`, `activation` and `output`, applied to the first token."""

    dense: str
    activation: str
    output: str


@dataclass(frozen=True, slots=True)
class VocabularyHead:
    """A language model's head: `dense`, `activation`, `norm` and `decoder`, applied to each token.

    `activation` is by default the encoder's. `bias` is the name of the decoder's bias if it is not stored
    under the decoder's own name.
    """

    dense: str
    norm: str
    decoder: str
    bias: str
    activation: str | None = None


class PostNorm(EncoderGraph[BertLike]):
    """A stack of post-norm layers over embeddings. Subclasses define the names of tensors."""

    layer_names: ClassVar[LayerNames]
    sequence_head: ClassVar[SequenceHead]
    vocabulary_head: ClassVar[VocabularyHead]

    def embed(self) -> ir.Value:
        """Add word and position embeddings, normalised: (positions, hidden_size)."""
        config, table = self.config, "embeddings.position_embeddings.weight"
        words = self.look_up("embeddings.word_embeddings.weight", config.vocab_size, self.layout.token_ids)
        positions = self.look_up(table, config.max_position_embeddings, self.positions())
        return self.norm(self.op.Add(words, positions), "embeddings.LayerNorm")

    def positions(self) -> ir.Value:
        """Return each token's index in the position embeddings, (positions,)."""
        return self.layout.token_positions

    def attention_bias(self) -> AttentionBias:
        """Return the bias of attention scores."""
        return AttentionBias.of(self.op, self.layout)

    def layer_name(self, index: int) -> str:
        """Return the prefix of the tensors of layer `index`."""
        return f"encoder.layer.{index}"

    def encode(self) -> ir.Value:
        """Add the encoder, as `EncoderGraph.encode` describes."""
        bias = self.attention_bias()
        x = self.embed()
        for index in range(self.config.num_hidden_layers):
            x = self.layer(x, self.layer_name(index), bias)
        return x

    def classify(self, hidden: ir.Value, labels: int) -> ir.Value:
        """Add the head, as `EncoderGraph.classify` describes."""
        return self.classify_by(self.sequence_head, hidden, labels)

    def classify_by(self, head: SequenceHead, hidden: ir.Value, labels: int) -> ir.Value:
        """Add `head`. Return logits, (texts, labels)."""
        width = self.config.hidden_size
        dense = self.linear(self.first_tokens(hidden), head.dense, width, width)
        return self.linear(activate(self.op, dense, head.activation), head.output, width, labels)

    def classify_tokens(self, hidden: ir.Value, labels: int) -> ir.Value:
        """Add the head, as `EncoderGraph.classify_tokens` describes."""
        return self.linear(hidden, "classifier", self.config.hidden_size, labels)

    def predict_tokens(self, hidden: ir.Value) -> ir.Value:
        """Add the head, as `EncoderGraph.predict_tokens` describes."""
        return next(self.predict_parts(hidden, self.config.vocab_size))

    def predict_parts(self, hidden: ir.Value, columns: int) -> Iterator[ir.Value]:
        """Add the head, as `EncoderGraph.predict_parts` describes."""
        head, config = self.vocabulary_head, self.config
        x = self.linear(hidden, head.dense, config.hidden_size, config.embedding_size)
        x = activate(self.op, x, head.activation or config.hidden_act)
        x = self.layer_norm(x, head.norm, config.layer_norm_eps, width=config.embedding_size)
        weight, bias = self._decoder(head)
        return self.linear_parts(x, weight, bias, config.embedding_size, config.vocab_size, columns)

    def layer(self, x: ir.Value, name: str, bias: AttentionBias) -> ir.Value:
        """Add one layer: attention and two linear layers, each with a residual and a norm."""
        op, config, names = self.op, self.config, self.layer_names
        hidden, wide = config.hidden_size, config.intermediate_size
        attended = self.linear(self.attend_by(x, name, bias), f"{name}.{names.attended}", hidden, hidden)
        x = self.norm(op.Add(attended, x), f"{name}.{names.attended_norm}")
        inner = activate(op, self.linear(x, f"{name}.{names.inner}", hidden, wide), config.hidden_act)
        outer = self.linear(inner, f"{name}.{names.outer}", wide, hidden)
        return self.norm(op.Add(outer, x), f"{name}.{names.outer_norm}")

    def attend_by(self, x: ir.Value, name: str, bias: AttentionBias) -> ir.Value:
        """Add the attention of layer `name`, without its output projection: (positions, hidden_size)."""
        query, key, value = self.project(x, name)
        return self.attend(query, key, value, bias, self.config.head_dim**-0.5)

    def project(self, x: ir.Value, name: str) -> list[Projection]:
        """Return queries, keys and values, which are parts of one product."""
        hidden, count = self.config.hidden_size, self.config.num_attention_heads
        parts = [f"{name}.{part}" for part in self._projections()]
        matrices = [self.weights.tensor(f"{part}.weight", (hidden, hidden)) for part in parts]
        biases = [self.weights.tensor(f"{part}.bias", (hidden,)) for part in parts]
        weight = self.add(concatenate(f"{parts[0]}_key_value.weight", matrices))
        bias = self.add(concatenate(f"{parts[0]}_key_value.bias", biases))
        projected = self.op.Gemm(x, weight, bias, transB=1)
        heads = [Heads(part * count, count, 3 * count, self.config.head_dim) for part in range(3)]
        return [Projection(projected, part) for part in heads]

    def norm(self, x: ir.Value, name: str) -> ir.Value:
        """Add layer normalisation over the hidden size."""
        return self.layer_norm(x, name, self.config.layer_norm_eps)

    def _projections(self) -> tuple[str, str, str]:
        return self.layer_names.query, self.layer_names.key, self.layer_names.value

    def _decoder(self, head: VocabularyHead) -> tuple[str, str]:
        """Return the names of the decoder's weight and bias: stored tensors, else the tied tensors.

        Like transformers, does not tie two stored tensors that differ.
        """
        config = self.config
        weight, bias = f"{head.decoder}.weight", f"{head.decoder}.bias"
        if config.tie_word_embeddings:
            weight = weight if self.weights.holds(weight) else "embeddings.word_embeddings.weight"
            bias = bias if self.weights.holds(bias) else head.bias
        return weight, bias
