"""What every architecture family is: an encoder, and the heads that its task models put on top.

A family is written once against `Layout` and works ragged and padded alike. It takes tensors by
the names that transformers gives them.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Generic, TypeVar

import numpy as np
import onnx_ir as ir

from vecmill.errors import UnsupportedModel
from vecmill.graphs.layout import Layout
from vecmill.graphs.ops import Ops
from vecmill.models.encoder import EncoderConfig
from vecmill.models.weights import StoredTensor, Weights

Config = TypeVar("Config", bound=EncoderConfig)


class Family(ABC, Generic[Config]):
    """One encoder being added to a graph.

    `prefix` is what begins the names of the encoder's tensors where a model has a head.
    """

    prefix: ClassVar[str] = ""

    def __init__(self, op: Ops, layout: Layout, config: Config, weights: Weights) -> None:
        self.op = op
        self.layout = layout
        self.config = config
        self.weights = weights.under(self.prefix)
        self._added: dict[str, ir.Value] = {}

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

    def predict_parts(self, hidden: ir.Value, columns: int) -> Iterator[ir.Value]:
        """As `predict_tokens` in parts that stand side by side: each (positions, columns), the last narrower.

        Where every part is done with before the next is taken, there never are logits over the whole
        vocabulary. Families that are not used so give one part.
        """
        return iter([self.predict_tokens(hidden)])

    def predict_chosen(self, hidden: ir.Value, token_ids: tuple[int, ...]) -> ir.Value:
        """Logits of a few tokens of the vocabulary, for (rows, hidden_size): (rows, token_ids)."""
        return self.op.Gather(self.predict_tokens(hidden), self.op.constant(token_ids), axis=1)

    # Parts that most families share.

    def linear(self, x: ir.Value, name: str, inputs: int, outputs: int, *, bias: bool = True) -> ir.Value:
        """`x @ weight.T + bias` over (rows, inputs), with the weights called `name`."""
        weight = self.add(self.weights.tensor(f"{name}.weight", (outputs, inputs)))
        if not bias:
            return self.op.Gemm(x, weight, None, transB=1)
        return self.op.Gemm(x, weight, self.vector(f"{name}.bias", outputs), transB=1)

    def linear_parts(
        self, x: ir.Value, weight: str, bias: str | None, inputs: int, outputs: int, columns: int
    ) -> Iterator[ir.Value]:
        """As `linear`, `columns` at a time, with tensors of any names."""
        for start in range(0, outputs, columns):
            stop = min(start + columns, outputs)
            part = self.add(self.weights.part(weight, (outputs, inputs), start, stop))
            shift = None if bias is None else self.add(self.weights.part(bias, (outputs,), start, stop))
            yield self.op.Gemm(x, part, shift, transB=1)

    def layer_norm(
        self, x: ir.Value, name: str, epsilon: float, *, width: int | None = None, shift: bool = True
    ) -> ir.Value:
        """Layer normalisation over the last axis, with scale and shift; `width` if not the hidden size."""
        width = width or self.config.hidden_size
        shifts = [self.vector(f"{name}.bias", width)] if shift else []
        scale = self.vector(f"{name}.weight", width)
        return self.op.LayerNormalization(x, scale, *shifts, axis=-1, epsilon=epsilon)

    def rms_norm(self, x: ir.Value, scale: ir.Value, epsilon: float) -> ir.Value:
        """Root-mean-square normalisation over the last axis (Zhang and Sennrich, 2019).

        Written out, since the operator is younger than our opset; ONNX Runtime makes one node of it.
        """
        op = self.op
        squares = op.Pow(x, op.constant(2, np.float32))
        mean = op.ReduceMean(squares, op.constant([-1]), keepdims=1)
        return op.Mul(op.Div(x, op.Sqrt(op.Add(mean, op.constant(epsilon, np.float32)))), scale)

    def vector(self, name: str, size: int) -> ir.Value:
        """A stored tensor of one dimension."""
        return self.add(self.weights.tensor(name, (size,)))

    def look_up(self, name: str, rows: int, indices: ir.Value, *, width: int | None = None) -> ir.Value:
        """Rows of the embedding table called `name`: (positions, width), as a rule the hidden size."""
        table = self.add(self.weights.tensor(name, (rows, width or self.config.hidden_size)))
        return self.op.Gather(table, indices)

    def add(self, tensor: StoredTensor) -> ir.Value:
        """A tensor of the model as a value of the graph; layers that share one share the value."""
        if tensor.name not in self._added:
            self._added[tensor.name] = self.op.weight(tensor)
        return self._added[tensor.name]

    def first_tokens(self, hidden: ir.Value) -> ir.Value:
        """From (positions, width), the first token of each text: (texts, width)."""
        op, layout = self.op, self.layout
        return layout.token_at(hidden, op.Mul(layout.lengths, op.constant(0)))

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
