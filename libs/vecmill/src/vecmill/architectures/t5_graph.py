"""The encoders of T5 (Raffel et al., 2020), mT5 and UMT5, as transformers' encoder models compute them.

Positions affect only a bias on attention scores. Each head and each bucket of distances has its own bias. In
T5 and mT5 the first layer stores the biases of all layers, in UMT5 each layer has its own.
"""

from collections.abc import Iterator
from itertools import repeat
from typing import ClassVar

import onnx_ir as ir

from vecmill.architectures.t5 import T5Config
from vecmill.graphs.distances import DistanceBiases, distance_buckets
from vecmill.graphs.encoder import EncoderGraph
from vecmill.graphs.ops import activate
from vecmill.graphs.softmax_attention import AttentionBias


class T5(EncoderGraph[T5Config]):
    """The graph of an encoder of T5 or mT5: pre-norm layers with unscaled attention."""

    prefix: ClassVar[str] = "transformer."

    def encode(self) -> ir.Value:
        """Add the encoder, as `EncoderGraph.encode` describes."""
        op, layout, config = self.op, self.layout, self.config
        x = self.look_up("encoder.embed_tokens.weight", config.vocab_size, layout.token_ids)
        for index, bias in enumerate(self.attention_biases()):
            name = f"encoder.block.{index}.layer"
            x = op.Add(
                x, self._attend(self._norm(x, f"{name}.0.layer_norm"), f"{name}.0.SelfAttention", bias)
            )
            x = op.Add(x, self._feed(self._norm(x, f"{name}.1.layer_norm"), f"{name}.1.DenseReluDense"))
        return self._norm(x, "encoder.final_layer_norm")

    def classify_tokens(self, hidden: ir.Value, labels: int) -> ir.Value:
        """Add the head, as `EncoderGraph.classify_tokens` describes."""
        return self.linear(hidden, "classifier", self.config.hidden_size, labels)

    def attention_biases(self) -> Iterator[AttentionBias]:
        """Yield the bias of each layer: that of the first."""
        return repeat(self.relative_bias(0), self.config.num_layers)

    def relative_bias(self, index: int) -> AttentionBias:
        """Return the bias that layer `index` stores."""
        config = self.config
        count, farthest = config.relative_attention_num_buckets, config.relative_attention_max_distance
        biases = self.look_up(
            f"encoder.block.{index}.layer.0.SelfAttention.relative_attention_bias.weight",
            count,
            self.op.constant(distance_buckets(count, farthest)),
            width=config.num_heads,
        )
        return AttentionBias.of(self.op, self.layout, distances=DistanceBiases(biases, farthest))

    def _attend(self, x: ir.Value, name: str, bias: AttentionBias) -> ir.Value:
        config = self.config
        count, dim = config.num_heads, config.d_kv
        parts = {f"{name}.{part}": count * dim for part in "qkv"}
        projected = self.linear_joined(x, f"{name}.qkv", parts, config.hidden_size, bias=False)
        query, key, value = self.split_thirds(projected, count, dim)
        attended = self.attend(query, key, value, bias, 1.0)
        return self.linear(attended, f"{name}.o", count * dim, config.hidden_size, bias=False)

    def _feed(self, x: ir.Value, name: str) -> ir.Value:
        op, config = self.op, self.config
        hidden, wide = config.hidden_size, config.d_ff
        if not config.is_gated_act:
            inner = activate(op, self.linear(x, f"{name}.wi", hidden, wide, bias=False), config.dense_act_fn)
            return self.linear(inner, f"{name}.wo", wide, hidden, bias=False)
        gate = activate(op, self.linear(x, f"{name}.wi_0", hidden, wide, bias=False), config.dense_act_fn)
        value = self.linear(x, f"{name}.wi_1", hidden, wide, bias=False)
        return self.linear(op.Mul(gate, value), f"{name}.wo", wide, hidden, bias=False)

    def _norm(self, x: ir.Value, name: str) -> ir.Value:
        scale = self.vector(f"{name}.weight", self.config.hidden_size)
        return self.rms_norm(x, scale, self.config.layer_norm_epsilon)


class UMT5(T5):
    """The graph of a UMT5 encoder: T5 with biases of its own in each layer."""

    def attention_biases(self) -> Iterator[AttentionBias]:
        """Yield the bias of each layer, which stores it."""
        return map(self.relative_bias, range(self.config.num_layers))
