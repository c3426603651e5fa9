"""The ModernBERT encoder (Warner et al., 2024), as transformers' `ModernBertModel` computes it."""

from collections.abc import Iterator
from typing import ClassVar

import onnx_ir as ir

from vecmill.architectures.modernbert import ModernBertConfig
from vecmill.graphs.encoder import EncoderGraph
from vecmill.graphs.last_tokens import LastTokens
from vecmill.graphs.ops import activate
from vecmill.graphs.rotary import Rotation
from vecmill.graphs.softmax_attention import AttentionBias
from vecmill.graphs.stages import pool
from vecmill.models.stages import Pooling, PoolingMode


class ModernBert(EncoderGraph[ModernBertConfig]):
    """The graph of ModernBERT: pre-norm layers with rotary positions, full and sliding attention."""

    prefix: ClassVar[str] = "model."
    computes_last_tokens: ClassVar = True

    def encode(self) -> ir.Value:
        """Add the encoder, as `EncoderGraph.encode` describes."""
        op, layout, config = self.op, self.layout, self.config
        kinds = dict.fromkeys(config.layers)
        biases = {kind: AttentionBias.of(op, layout, kind.window) for kind in kinds}
        rotations = {
            kind: Rotation.of(op, layout, kind.rope, config.head_dim)
            for kind in kinds
            if kind.rope is not None  # every layer of ModernBERT has positions
        }
        x = self.look_up("embeddings.tok_embeddings.weight", config.vocab_size, layout.token_ids)
        x = self._norm(x, "embeddings.norm")
        for index, kind in enumerate(config.layers):
            name = f"layers.{index}"
            # The embeddings are normalised already.
            inner = x if index == 0 else self._norm(x, f"{name}.attn_norm")
            last = layout.last_tokens if index == len(config.layers) - 1 else None
            attended = self._attend(inner, f"{name}.attn", biases[kind], rotations[kind], last)
            x = op.Add(x if last is None else last.select(op, x), attended)
            x = op.Add(x, self._gate(self._norm(x, f"{name}.mlp_norm"), f"{name}.mlp"))
        return self._norm(x, "final_norm")

    def classified_slots(self) -> ir.Value | None:
        """Return the first slot of each text, if the head pools it."""
        return self.first_slots() if self.config.classifier_pooling == PoolingMode.CLS else None

    def classify(self, hidden: ir.Value, labels: int) -> ir.Value:
        """Add the head, as `EncoderGraph.classify` describes."""
        mode = PoolingMode(self.config.classifier_pooling)
        pooled = pool(self.op, self.layout, hidden, Pooling((mode,)))
        return self.linear(self._transform(pooled), "classifier", self.config.hidden_size, labels)

    def classify_tokens(self, hidden: ir.Value, labels: int) -> ir.Value:
        """Add the head, as `EncoderGraph.classify_tokens` describes."""
        return self.linear(self._transform(hidden), "classifier", self.config.hidden_size, labels)

    def predict_tokens(self, hidden: ir.Value) -> ir.Value:
        """Add the head, as `EncoderGraph.predict_tokens` describes."""
        return next(self.predict_parts(hidden, self.config.vocab_size))

    def predict_parts(self, hidden: ir.Value, columns: int) -> Iterator[ir.Value]:
        """Add the head, as `EncoderGraph.predict_parts` describes."""
        config = self.config
        bias = "decoder.bias" if config.decoder_bias else None
        x = self._transform(hidden)
        return self.linear_parts(x, "decoder.weight", bias, config.hidden_size, config.vocab_size, columns)

    def _attend(
        self, x: ir.Value, name: str, bias: AttentionBias, rotation: Rotation, last: LastTokens | None
    ) -> ir.Value:
        op, config = self.op, self.config
        count, dim, width = config.num_attention_heads, config.head_dim, config.hidden_size
        has_bias, query_rotation = config.attention_bias, rotation
        if last is None:
            projected = self.linear(x, f"{name}.Wqkv", width, 3 * width, bias=has_bias)
            query, key, value = self.split_thirds(projected, count, dim)
        else:
            query, key, value = self.split_last(x, last, f"{name}.Wqkv", count, dim, bias=has_bias)
            query_rotation = rotation.of_positions(op, last.positions)
        query, key = query_rotation.rotate_heads(op, query), rotation.rotate_heads(op, key)
        attended = self.attend(query, key, value, bias, dim**-0.5, last=last)
        return self.linear(attended, f"{name}.Wo", width, width, bias=config.attention_bias)

    def _gate(self, x: ir.Value, name: str) -> ir.Value:
        op, config = self.op, self.config
        hidden, wide = config.hidden_size, config.intermediate_size
        both = self.linear(x, f"{name}.Wi", hidden, 2 * wide, bias=config.mlp_bias)
        gate = activate(op, op.slice(both, 0, wide, axis=1), config.hidden_activation)
        value = op.slice(both, wide, 2 * wide, axis=1)
        return self.linear(op.Mul(gate, value), f"{name}.Wo", wide, hidden, bias=config.mlp_bias)

    def _transform(self, x: ir.Value) -> ir.Value:
        """Add the layer that all heads share, (n, hidden_size)."""
        width, bias = self.config.hidden_size, self.config.classifier_bias
        dense = self.linear(x, "head.dense", width, width, bias=bias)
        return self._norm(activate(self.op, dense, self.config.classifier_activation), "head.norm")

    def _norm(self, x: ir.Value, name: str) -> ir.Value:
        return self.layer_norm(x, name, self.config.norm_eps, shift=self.config.norm_bias)
