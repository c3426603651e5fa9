"""What every architecture family is: an encoder, and the heads that its task models put on top.

A family is written once against `Layout` and works ragged and padded alike. It takes tensors by
the names that transformers gives them.
"""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

import numpy as np
import onnx_ir as ir

from vecmill.errors import UnsupportedModel
from vecmill.graphs.layout import Layout
from vecmill.graphs.ops import Ops
from vecmill.models.encoder import EncoderConfig
from vecmill.models.weights import Weights

Config = TypeVar("Config", bound=EncoderConfig)


class Family(ABC, Generic[Config]):
    """One encoder being added to a graph."""

    def __init__(self, op: Ops, layout: Layout, config: Config, weights: Weights) -> None:
        self.op = op
        self.layout = layout
        self.config = config
        self.weights = weights

    @abstractmethod
    def encode(self) -> ir.Value:
        """Add the encoder. Returns the last hidden state, (positions, hidden_size), float32."""

    def classify(self, hidden: ir.Value, labels: int) -> ir.Value:
        """Add the sequence classification head: logits, (texts, labels)."""
        raise _no_head(self, "sequence classification")

    def classify_tokens(self, hidden: ir.Value, labels: int) -> ir.Value:
        """Add the token classification head: logits, (positions, labels)."""
        raise _no_head(self, "token classification")

    def predict_tokens(self, hidden: ir.Value) -> ir.Value:
        """Add the language model's head: logits over the vocabulary, (positions, vocab_size)."""
        raise _no_head(self, "language model")

    # Parts that most families share.

    def linear(self, x: ir.Value, name: str, inputs: int, outputs: int, *, bias: bool = True) -> ir.Value:
        """`x @ weight.T + bias` over (rows, inputs), with the weights called `name`."""
        weight = self.op.weight(self.weights.tensor(f"{name}.weight", (outputs, inputs)))
        if not bias:
            return self.op.Gemm(x, weight, None, transB=1)
        return self.op.Gemm(x, weight, self.vector(f"{name}.bias", outputs), transB=1)

    def layer_norm(self, x: ir.Value, name: str, epsilon: float) -> ir.Value:
        """Layer normalisation over the last axis, with scale and shift."""
        width = self.config.hidden_size
        scale, shift = self.vector(f"{name}.weight", width), self.vector(f"{name}.bias", width)
        return self.op.LayerNormalization(x, scale, shift, axis=-1, epsilon=epsilon)

    def vector(self, name: str, size: int) -> ir.Value:
        """A stored tensor of one dimension."""
        return self.op.weight(self.weights.tensor(name, (size,)))

    def look_up(self, name: str, rows: int, indices: ir.Value) -> ir.Value:
        """Rows of the embedding table called `name`: (positions, hidden_size)."""
        table = self.op.weight(self.weights.tensor(name, (rows, self.config.hidden_size)))
        return self.op.Gather(table, indices)

    def attend(
        self, query: ir.Value, key: ir.Value, value: ir.Value, bias: ir.Value, scale: float
    ) -> ir.Value:
        """Softmax attention over (texts, heads, longest, dim); `bias` is added to the scores.

        ONNX Runtime folds the transpose and the scale into the product.
        """
        op = self.op
        scores = op.MatMul(query, op.Transpose(key, perm=[0, 1, 3, 2]))
        scores = op.Mul(scores, op.constant(scale, np.float32))
        return op.MatMul(op.Softmax(op.Add(scores, bias), axis=-1), value)


def _no_head(family: Family[Config], head: str) -> UnsupportedModel:
    return UnsupportedModel(f"{type(family).__name__} models with a {head} head are not supported.")
