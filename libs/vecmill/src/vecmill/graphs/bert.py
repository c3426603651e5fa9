"""The BERT encoder (Devlin et al., 2018), as transformers' `BertModel` computes it."""

import numpy as np
import onnx_ir as ir

from vecmill.graphs.layout import Heads, Layout
from vecmill.graphs.ops import Ops
from vecmill.models.bert import BertConfig
from vecmill.models.description import ModelDescription
from vecmill.models.weights import Weights, concatenate


def build_bert(op: Ops, layout: Layout, description: ModelDescription, weights: Weights) -> ir.Value:
    """Add the encoder. Returns the last hidden state, (positions, hidden), float32."""
    return _Bert(op, layout, BertConfig.read(description.config), weights).encode()


class _Bert:
    def __init__(self, op: Ops, layout: Layout, config: BertConfig, weights: Weights) -> None:
        self._op = op
        self._layout = layout
        self._config = config
        self._weights = weights

    def encode(self) -> ir.Value:
        x = self._embed()
        for index in range(self._config.num_hidden_layers):
            x = self._layer(x, f"encoder.layer.{index}")
        return x

    def _embed(self) -> ir.Value:
        op, layout, config = self._op, self._layout, self._config
        words = op.Gather(self._table("word_embeddings", config.vocab_size), layout.token_ids)
        types = op.Gather(self._table("token_type_embeddings", config.type_vocab_size), layout.token_type_ids)
        places = op.Gather(
            self._table("position_embeddings", config.max_position_embeddings), layout.token_positions
        )
        return self._norm(op.Add(op.Add(words, types), places), "embeddings.LayerNorm")

    def _layer(self, x: ir.Value, name: str) -> ir.Value:
        op, config = self._op, self._config
        hidden, wide = config.hidden_size, config.intermediate_size
        attended = self._linear(self._attend(x, name), f"{name}.attention.output.dense", hidden, hidden)
        x = self._norm(op.Add(attended, x), f"{name}.attention.output.LayerNorm")
        inner = activate(op, self._linear(x, f"{name}.intermediate.dense", hidden, wide), config.hidden_act)
        outer = self._linear(inner, f"{name}.output.dense", wide, hidden)
        return self._norm(op.Add(outer, x), f"{name}.output.LayerNorm")

    def _attend(self, x: ir.Value, name: str) -> ir.Value:
        op, layout = self._op, self._layout
        count, dim = self._config.num_attention_heads, self._config.head_dim
        projected = self._project(x, name)
        query, key, value = (
            layout.split_heads(projected, Heads(first=part * count, count=count, total=3 * count, dim=dim))
            for part in range(3)
        )
        # ONNX Runtime folds the transpose and the scale into the product.
        scores = op.MatMul(query, op.Transpose(key, perm=[0, 1, 3, 2]))
        scores = op.Mul(scores, op.constant(dim**-0.5, np.float32))
        shares = op.Softmax(op.Add(scores, layout.key_bias), axis=-1)
        return layout.merge_heads(op.MatMul(shares, value), width=count * dim)

    def _project(self, x: ir.Value, name: str) -> ir.Value:
        """Queries, keys and values in one product: (positions, 3 * hidden)."""
        hidden = self._config.hidden_size
        parts = [f"{name}.attention.self.{part}" for part in ("query", "key", "value")]
        matrices = [self._weights.tensor(f"{part}.weight", (hidden, hidden)) for part in parts]
        biases = [self._weights.tensor(f"{part}.bias", (hidden,)) for part in parts]
        stem = f"{name}.attention.self.query_key_value"
        return self._op.Gemm(
            x,
            self._op.weight(concatenate(f"{stem}.weight", matrices)),
            self._op.weight(concatenate(f"{stem}.bias", biases)),
            transB=1,
        )

    def _linear(self, x: ir.Value, name: str, inputs: int, outputs: int) -> ir.Value:
        weight = self._op.weight(self._weights.tensor(f"{name}.weight", (outputs, inputs)))
        bias = self._op.weight(self._weights.tensor(f"{name}.bias", (outputs,)))
        return self._op.Gemm(x, weight, bias, transB=1)

    def _norm(self, x: ir.Value, name: str) -> ir.Value:
        scale, shift = (
            self._op.weight(self._weights.tensor(f"{name}.{part}", (self._config.hidden_size,)))
            for part in ("weight", "bias")
        )
        return self._op.LayerNormalization(x, scale, shift, axis=-1, epsilon=self._config.layer_norm_eps)

    def _table(self, name: str, rows: int) -> ir.Value:
        shape = (rows, self._config.hidden_size)
        return self._op.weight(self._weights.tensor(f"embeddings.{name}.weight", shape))


def activate(op: Ops, x: ir.Value, name: str) -> ir.Value:
    """Apply an activation by transformers' name for it, one of `models.bert.ACTIVATIONS`."""
    match name:
        case "relu":
            return op.Relu(x)
        case "silu" | "swish":
            return op.Mul(x, op.Sigmoid(x))
        case "gelu_new" | "gelu_pytorch_tanh":
            return op.Gelu(x, approximate="tanh")
        case _:
            return op.Gelu(x)
