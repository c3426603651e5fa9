"""Encoders that normalise after each residual, as BERT does, and the heads that they share.

Such families differ in what they embed, in what they add to attention scores, and in how their
tensors are called. A family says the last in `LayerNames`, `SequenceHead` and `VocabularyHead`, and
overrides the methods for the others:

    embed           (positions, hidden_size): what enters the first layer
    attention_bias  added to the scores of every layer, besides the mask
    layer_name      which tensors a layer uses; layers may share them
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import onnx_ir as ir

from vecmill.graphs.activations import activate
from vecmill.graphs.family import Family
from vecmill.graphs.layout import Heads
from vecmill.models.bert import BertConfig
from vecmill.models.weights import concatenate

BertLike = TypeVar("BertLike", bound=BertConfig)


@dataclass(frozen=True, slots=True)
class LayerNames:
    """What a family calls the tensors of one layer, after the layer's own name."""

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
    """The first token's row goes through `dense`, `activation` and `output`."""

    dense: str
    activation: str
    output: str


@dataclass(frozen=True, slots=True)
class VocabularyHead:
    """Each token's row goes through `dense`, `activation`, `norm` and `decoder`.

    Without an activation it is the encoder's. `bias` is what the decoder's bias is called where it is
    not stored under the decoder's own name.
    """

    dense: str
    norm: str
    decoder: str
    bias: str
    activation: str | None = None


class PostNorm(Family[BertLike]):
    """A stack of post-norm layers over embeddings. Subclasses name its tensors."""

    layer_names: ClassVar[LayerNames]
    sequence_head: ClassVar[SequenceHead]
    vocabulary_head: ClassVar[VocabularyHead]

    @abstractmethod
    def embed(self) -> ir.Value:
        """What enters the first layer, (positions, hidden_size)."""

    def attention_bias(self) -> ir.Value:
        """What is added to attention scores; its shape broadcasts to (texts, heads, longest, longest)."""
        return self.layout.key_bias

    def layer_name(self, index: int) -> str:
        """What begins the names of the tensors of layer `index`."""
        return f"encoder.layer.{index}"

    def encode(self) -> ir.Value:
        """As `Family.encode`."""
        bias = self.attention_bias()
        x = self.embed()
        for index in range(self.config.num_hidden_layers):
            x = self.layer(x, self.layer_name(index), bias)
        return x

    def classify(self, hidden: ir.Value, labels: int) -> ir.Value:
        """As `Family.classify`."""
        return self.classify_by(self.sequence_head, hidden, labels)

    def classify_by(self, head: SequenceHead, hidden: ir.Value, labels: int) -> ir.Value:
        """Logits by `head`, (texts, labels)."""
        width = self.config.hidden_size
        dense = self.linear(self.first_tokens(hidden), head.dense, width, width)
        return self.linear(activate(self.op, dense, head.activation), head.output, width, labels)

    def classify_tokens(self, hidden: ir.Value, labels: int) -> ir.Value:
        """As `Family.classify_tokens`."""
        return self.linear(hidden, "classifier", self.config.hidden_size, labels)

    def predict_tokens(self, hidden: ir.Value) -> ir.Value:
        """As `Family.predict_tokens`."""
        return next(self.predict_parts(hidden, self.config.vocab_size))

    def predict_parts(self, hidden: ir.Value, columns: int) -> Iterator[ir.Value]:
        """As `Family.predict_parts`."""
        head, config = self.vocabulary_head, self.config
        x = self.linear(hidden, head.dense, config.hidden_size, config.embedding_size)
        x = activate(self.op, x, head.activation or config.hidden_act)
        x = self.layer_norm(x, head.norm, config.layer_norm_eps, width=config.embedding_size)
        weight, bias = self._decoder(head)
        return self.linear_parts(x, weight, bias, config.embedding_size, config.vocab_size, columns)

    def layer(self, x: ir.Value, name: str, bias: ir.Value) -> ir.Value:
        """One layer: attention and two linear layers, each added to its input and normalised."""
        op, config, names = self.op, self.config, self.layer_names
        hidden, wide = config.hidden_size, config.intermediate_size
        attended = self.linear(self.attend_by(x, name, bias), f"{name}.{names.attended}", hidden, hidden)
        x = self.norm(op.Add(attended, x), f"{name}.{names.attended_norm}")
        inner = activate(op, self.linear(x, f"{name}.{names.inner}", hidden, wide), config.hidden_act)
        outer = self.linear(inner, f"{name}.{names.outer}", wide, hidden)
        return self.norm(op.Add(outer, x), f"{name}.{names.outer_norm}")

    def attend_by(self, x: ir.Value, name: str, bias: ir.Value) -> ir.Value:
        """What attention of the layer called `name` gathers: (positions, hidden_size)."""
        query, key, value = self.project(x, name)
        attended = self.attend(query, key, value, bias, self.config.head_dim**-0.5)
        return self.layout.merge_heads(attended, width=self.config.hidden_size)

    def project(self, x: ir.Value, name: str) -> list[ir.Value]:
        """Queries, keys and values by text, (texts, heads, longest, dim) each: one product for all three."""
        hidden, count = self.config.hidden_size, self.config.num_attention_heads
        parts = [f"{name}.{part}" for part in self._projections()]
        matrices = [self.weights.tensor(f"{part}.weight", (hidden, hidden)) for part in parts]
        biases = [self.weights.tensor(f"{part}.bias", (hidden,)) for part in parts]
        weight = self.add(concatenate(f"{parts[0]}_key_value.weight", matrices))
        bias = self.add(concatenate(f"{parts[0]}_key_value.bias", biases))
        projected = self.op.Gemm(x, weight, bias, transB=1)
        heads = [Heads(part * count, count, 3 * count, self.config.head_dim) for part in range(3)]
        return [self.layout.split_heads(projected, part) for part in heads]

    def norm(self, x: ir.Value, name: str) -> ir.Value:
        """Layer normalisation over the hidden size."""
        return self.layer_norm(x, name, self.config.layer_norm_eps)

    def _projections(self) -> tuple[str, str, str]:
        return self.layer_names.query, self.layer_names.key, self.layer_names.value

    def _decoder(self, head: VocabularyHead) -> tuple[str, str]:
        """What the weight and bias of the product with the vocabulary are called: its own where stored, else
        those that it is tied to.

        transformers ties likewise, and leaves both as they are where both are stored and differ.
        """
        config = self.config
        weight, bias = f"{head.decoder}.weight", f"{head.decoder}.bias"
        if config.tie_word_embeddings:
            weight = weight if self.weights.holds(weight) else "embeddings.word_embeddings.weight"
            bias = bias if self.weights.holds(bias) else head.bias
        return weight, bias
