"""The base class of the graphs of all architectures: an encoder and the heads of its task models.

A graph is written once against `Layout`, for ragged and padded batches alike. It reads tensors by
transformers' names.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import ClassVar, Generic, TypeVar

import numpy as np
import onnx_ir as ir

from vecmill.errors import UnsupportedModel
from vecmill.graphs.batch_layout import Heads, Layout
from vecmill.graphs.last_tokens import LastTokens
from vecmill.graphs.ops import Ops
from vecmill.graphs.softmax_attention import Attention, AttentionBias, Projection, ScaledProducts, mask_last
from vecmill.models.encoder_config import EncoderConfig
from vecmill.models.weights import StoredTensor, Weights, concatenate

Config = TypeVar("Config", bound=EncoderConfig)


class EncoderGraph(ABC, Generic[Config]):
    """The encoder of one model, which its methods add to a graph.

    `prefix` begins the names of the encoder's tensors in a model with a head.
    """

    prefix: ClassVar[str] = ""

    computes_last_tokens: ClassVar[bool] = False
    """Whether `encode` computes `layout.last_tokens` alone in the last layer, if there are any."""

    def __init__(self, op: Ops, layout: Layout, config: Config, weights: Weights) -> None:
        self.op = op
        self.layout = layout
        self.config = config
        self.weights = weights.with_prefix(self.prefix)
        self.layers: list[ir.Value] = []
        """The input of the first layer and the output of each, if the settings have `given_layers`."""
        self._added: dict[str, ir.Value] = {}

    @abstractmethod
    def encode(self) -> ir.Value:
        """Add the encoder. Return the last hidden state, (positions, hidden_size), float32.

        If the layout has `last_tokens`, its rows are those of these tokens.
        """

    def classify(self, hidden: ir.Value, labels: int) -> ir.Value:
        """Add the sequence classification head. Return logits, (texts, labels)."""
        raise _no_head(self, "sequence classification")

    def classified_slots(self) -> ir.Value | None:
        """Return the slot of the token of each text that `classify` reads, (texts,), or `None` for more."""
        return None

    def pool(self, hidden: ir.Value) -> ir.Value:
        """Add the architecture's own pooling (`OwnPooling`). Return embeddings, (texts, dim)."""
        raise _no_head(self, "pooling")

    def pooled_slots(self) -> ir.Value | None:
        """Return the slot of the token of each text that `pool` reads, (texts,), or `None` for more."""
        return None

    def classify_tokens(self, hidden: ir.Value, labels: int) -> ir.Value:
        """Add the token classification head. Return logits, (positions, labels)."""
        raise _no_head(self, "token classification")

    def project_tokens(self, hidden: ir.Value) -> ir.Value:
        """Add the head of a listwise reranker. Return a vector for each token, (positions, width)."""
        raise _no_head(self, "list")

    def predict_tokens(self, hidden: ir.Value) -> ir.Value:
        """Add the language model's head. Return logits over the vocabulary, (positions, vocab_size)."""
        raise _no_head(self, "language model")

    def predict_parts(self, hidden: ir.Value, columns: int) -> Iterator[ir.Value]:
        """Yield the logits of `predict_tokens` in parts of `columns` entries, the last one smaller.

        A caller that consumes each part before the next never holds logits over the whole vocabulary. By
        default there is one part.
        """
        return iter([self.predict_tokens(hidden)])

    def predict_chosen(self, hidden: ir.Value, token_ids: tuple[int, ...]) -> ir.Value:
        """Return the logits of `token_ids` alone: (n, hidden_size) to (n, token_ids)."""
        return self.op.Gather(self.predict_tokens(hidden), self.op.constant(token_ids), axis=1)

    # Parts that most architectures share.

    def linear(self, x: ir.Value, name: str, inputs: int, outputs: int, *, bias: bool = True) -> ir.Value:
        """Return `x @ weight.T + bias` with the weights `name`: (n, inputs) to (n, outputs)."""
        weight = self.add(self.weights.tensor(f"{name}.weight", (outputs, inputs)))
        if not bias:
            return self.op.Gemm(x, weight, None, transB=1)
        return self.op.Gemm(x, weight, self.vector(f"{name}.bias", outputs), transB=1)

    def linear_joined(
        self, x: ir.Value, name: str, outputs: Mapping[str, int], inputs: int, *, bias: bool = True
    ) -> ir.Value:
        """Return the results of `linear` side by side, as one product whose weights are named `name`.

        `outputs` are the widths by the names of the joined weights.
        """
        matrices = [self.weights.tensor(f"{part}.weight", (rows, inputs)) for part, rows in outputs.items()]
        weight = self.add(concatenate(f"{name}.weight", matrices))
        if not bias:
            return self.op.Gemm(x, weight, None, transB=1)
        biases = [self.weights.tensor(f"{part}.bias", (rows,)) for part, rows in outputs.items()]
        return self.op.Gemm(x, weight, self.add(concatenate(f"{name}.bias", biases)), transB=1)

    def linear_part(
        self, x: ir.Value, name: str, inputs: int, outputs: int, rows: range, *, bias: bool = True
    ) -> ir.Value:
        """Return those columns of `linear` that `rows` of the weights `name` give: (n, rows)."""
        stored = self.weights.part(f"{name}.weight", (outputs, inputs), rows.start, rows.stop)
        shift = None
        if bias:
            shift = self.add(self.weights.part(f"{name}.bias", (outputs,), rows.start, rows.stop))
        return self.op.Gemm(x, self.add(stored), shift, transB=1)

    def linear_parts(
        self, x: ir.Value, weight: str, bias: str | None, inputs: int, outputs: int, columns: int
    ) -> Iterator[ir.Value]:
        """Yield the result of `linear` in parts of `columns` outputs; `weight` and `bias` are whole names."""
        for start in range(0, outputs, columns):
            stop = min(start + columns, outputs)
            part = self.add(self.weights.part(weight, (outputs, inputs), start, stop))
            shift = None if bias is None else self.add(self.weights.part(bias, (outputs,), start, stop))
            yield self.op.Gemm(x, part, shift, transB=1)

    def layer_norm(
        self, x: ir.Value, name: str, epsilon: float, *, width: int | None = None, shift: bool = True
    ) -> ir.Value:
        """Add layer normalisation over the last axis, of `width` or the hidden size."""
        width = width or self.config.hidden_size
        shifts = [self.vector(f"{name}.bias", width)] if shift else []
        scale = self.vector(f"{name}.weight", width)
        return self.op.LayerNormalization(x, scale, *shifts, axis=-1, epsilon=epsilon)

    def rms_norm(self, x: ir.Value, scale: ir.Value, epsilon: float) -> ir.Value:
        """Add root-mean-square normalisation over the last axis (Zhang and Sennrich, 2019).

        Composed of operators, because `OPSET` has no RMSNormalization. ONNX Runtime fuses them to one node.
        """
        op = self.op
        squares = op.Pow(x, op.constant(2, np.float32))
        mean = op.ReduceMean(squares, op.constant([-1]), keepdims=1)
        return op.Mul(op.Div(x, op.Sqrt(op.Add(mean, op.constant(epsilon, np.float32)))), scale)

    def vector(self, name: str, size: int) -> ir.Value:
        """Return the one-dimensional tensor `name`."""
        return self.add(self.weights.tensor(name, (size,)))

    def look_up(self, name: str, rows: int, indices: ir.Value, *, width: int | None = None) -> ir.Value:
        """Look up rows of the embedding table `name`: (positions, width or the hidden size)."""
        table = self.weights.tensor(name, (rows, width or self.config.hidden_size))
        if self.op.keeps_table(table):
            return self.op.look_up(table, indices)
        return self.op.Gather(self.add(table), indices)

    def add(self, tensor: StoredTensor) -> ir.Value:
        """Return the value of a tensor in the graph; equal names share one value."""
        if tensor.name not in self._added:
            self._added[tensor.name] = self.op.weight(tensor)
        return self._added[tensor.name]

    def first_tokens(self, hidden: ir.Value) -> ir.Value:
        """Return the first token of each text: (positions, width) to (texts, width)."""
        return self.layout.read_at(hidden, self.first_slots)

    def first_slots(self) -> ir.Value:
        """Return the slot of the first token of each text: zeros, (texts,)."""
        return self.op.Mul(self.layout.lengths, self.op.constant(0))

    def known_types(self, count: int) -> ir.Value:
        """Return each token's index in a table of `count` token types, (positions,)."""
        if count > 1:
            return self.layout.token_type_ids
        # Tokenizers may give the second text of a pair type 1 although the model has one type.
        return self.op.Mul(self.layout.token_type_ids, self.op.constant(0))

    def split_thirds(self, projected: ir.Value, count: int, dim: int) -> list[Projection]:
        """Return queries, keys and values, each of `count` heads of `dim`, which stand side by side."""
        return [Projection(projected, Heads(part * count, count, 3 * count, dim)) for part in range(3)]

    def split_last(
        self, x: ir.Value, last: LastTokens, name: str, count: int, dim: int, *, bias: bool
    ) -> list[Projection]:
        """Return the queries of `last`, and keys and values, by the weights `name` of all three."""
        width = count * dim
        query = self.linear_part(last.select(self.op, x), name, width, 3 * width, range(width), bias=bias)
        others = self.linear_part(x, name, width, 3 * width, range(width, 3 * width), bias=bias)
        return self.beside_queries(query, others, count, dim)

    def beside_queries(self, query: ir.Value, others: ir.Value, count: int, dim: int) -> list[Projection]:
        """Return queries, and keys and values that stand side by side, each of `count` heads of `dim`."""
        heads = [Heads(part * count, count, 2 * count, dim) for part in range(2)]
        return [Projection(query, Heads(0, count, count, dim)), *(Projection(others, its) for its in heads)]

    def attend(
        self,
        query: Projection,
        key: Projection,
        value: Projection,
        bias: AttentionBias,
        scale: float,
        *,
        cap: float | None = None,
        last: LastTokens | None = None,
    ) -> ir.Value:
        """Add softmax attention. Return attended values, (positions, heads * dim).

        Scores are multiplied by `scale` and bounded by `cap`, if there is one, and `bias` is added. Keys and
        values may have fewer heads than queries. In the last layer, the queries and the result are those of
        `last`, if the layout has it.
        """
        op, layout = self.op, self.layout
        attention = Attention(query, key, value, bias.window)
        products = ScaledProducts(query.heads, key.heads, bias, scale, cap)
        if last is None:
            attended = attention.add(op, layout, partial(products.weigh, op), scale=products.plain_scale())
            return bias.drop_keyless(op, attended)
        mask = AttentionBias(mask_last(op, layout, last, bias.window), bias.window, None)
        of_last = replace(products, bias=mask)
        return attention.add_last(
            op,
            layout,
            last,
            partial(products.weigh, op),
            partial(of_last.weigh, op),
            products.plain_scale(),
        )


def _no_head(graph: EncoderGraph[Config], head: str) -> UnsupportedModel:
    return UnsupportedModel(f"{type(graph).__name__} models with a {head} head are not supported.")
