"""The graphs of language models that differ from Llama in a detail, and of EuroBERT.

Each graph computes what the class of transformers computes.
"""

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from vecmill.architectures.decoder import HeadShape
from vecmill.architectures.decoder_graph import OUTPUT_WEIGHTS, Decoder, DecoderInputs
from vecmill.architectures.llama_variants import EuroBertConfig, Ministral3Config
from vecmill.graphs.batch_layout import Heads
from vecmill.graphs.last_tokens import LastTokens
from vecmill.graphs.ops import activate
from vecmill.graphs.rotary import Rotation
from vecmill.graphs.softmax_attention import Projection
from vecmill.graphs.stages import pool
from vecmill.models.stages import Pooling, PoolingMode


class Ministral3(Decoder):
    """The graph of Ministral 3: queries are multiplied by a factor that grows with their position."""

    config: Ministral3Config
    _factors: ir.Value | None = None

    def encode(self) -> ir.Value:
        """Add the encoder, as `EncoderGraph.encode` describes."""
        self._factors = self._find_factors()
        return super().encode()

    def finish_query(self, query: Projection, last: LastTokens | None) -> Projection:
        """Return the queries times their factors."""
        if self._factors is None:
            return query
        factors = self._factors if last is None else last.select(self.op, self._factors)
        return Projection(self.op.Mul(query.values, factors), query.heads)

    def _find_factors(self) -> ir.Value | None:
        """Return the factor of the queries of each position, (positions, 1, 1), or `None` if all are 1."""
        op, growth = self.op, self.config.query_growth
        if growth is None:
            return None
        positions = op.Cast(self.layout.token_positions, to=ir.DataType.FLOAT)
        parts = op.Div(positions, op.constant(growth.trained_tokens, np.float32))
        # A cast to whole numbers rounds down.
        whole = op.Cast(op.Cast(parts, to=ir.DataType.INT64), to=ir.DataType.FLOAT)
        one = op.constant(1, np.float32)
        grown = op.Mul(op.Log(op.Add(whole, one)), op.constant(growth.weight, np.float32))
        return op.Unsqueeze(op.Add(grown, one), op.constant([1, 2]))


class NormAfter(Decoder):
    """The graph of decoders that normalise the results of attention and of the gated unit."""

    def add_layer(self, x: ir.Value, name: str, inputs: DecoderInputs) -> ir.Value:
        """Add one layer, (positions, hidden_size)."""
        op, width = self.op, self.config.hidden_size
        attended = self.attend_by_groups(x, name, inputs)
        x = op.Add(self.select(x, inputs), self.norm(attended, f"{name}.post_attention_layernorm", width))
        return op.Add(x, self.norm(self.gate(x, f"{name}.mlp"), f"{name}.post_feedforward_layernorm", width))


class Olmo2(NormAfter):
    """The graph of OLMo 2 and 3: one norm over the queries of all heads, and one over the keys."""

    def rotate(self, projection: Projection, name: str, rotation: Rotation | None) -> Projection:
        """Return the heads of `projection`, normalised together, and rotated."""
        op, heads = self.op, projection.heads
        first, width = heads.first * heads.dim, heads.count * heads.dim
        selected = op.slice(projection.values, first, first + width, axis=1)
        normalised = self.norm(selected, name, width)
        return super().rotate(
            Projection(normalised, Heads(0, heads.count, heads.count, heads.dim)), name, rotation
        )


class Phi3(Decoder):
    """The graph of Phi-3: one matrix for queries, keys and values, and one for the gated unit's inputs."""

    def project(self, x: ir.Value, name: str, heads: HeadShape) -> ir.Value:
        """Return queries, keys and values of one product: (positions, (heads + 2 * shared) * dim)."""
        width = (heads.count + 2 * heads.shared) * heads.dim
        return self.linear(x, f"{name}.qkv_proj", self.config.hidden_size, width, bias=False)

    def project_part(self, x: ir.Value, name: str, part: str, heads: HeadShape) -> ir.Value:
        """Return the queries, or the keys and values, as `Decoder.project_part` describes."""
        queries = heads.count * heads.dim
        width = queries + 2 * heads.shared * heads.dim
        rows = range(queries) if part == "q" else range(queries, width)
        return self.linear_part(x, f"{name}.qkv_proj", self.config.hidden_size, width, rows, bias=False)

    def gate(self, x: ir.Value, name: str) -> ir.Value:
        """Add the gated linear unit, (positions, hidden_size)."""
        op, config = self.op, self.config
        hidden, wide = config.hidden_size, config.intermediate_size
        both = self.linear(x, f"{name}.gate_up_proj", hidden, 2 * wide, bias=False)
        gate = activate(op, op.slice(both, 0, wide, axis=1), config.hidden_act)
        value = op.slice(both, wide, 2 * wide, axis=1)
        return self.linear(op.Mul(gate, value), f"{name}.down_proj", wide, hidden, bias=False)


class EuroBert(Decoder):
    """The graph of EuroBERT (transformers' `EuroBertModel`): layers of Llama, and heads of its own."""

    config: EuroBertConfig

    def classified_slots(self) -> ir.Value | None:
        """Return the first slot of each text, unless the head reads all tokens."""
        return None if self.config.classifier_pooling in ("late", "mean") else self.first_slots()

    def classify(self, hidden: ir.Value, labels: int) -> ir.Value:
        """Add the head, as `EncoderGraph.classify` describes.

        With the pooling "late" each token has logits, and their mean is the logits of the text.
        """
        match self.config.classifier_pooling:
            case "late":
                return self._mean(self._classify_rows(hidden, labels))
            case "mean":
                return self._classify_rows(self._mean(hidden), labels)
            case _:
                return self._classify_rows(self.first_tokens(hidden), labels)

    def classify_tokens(self, hidden: ir.Value, labels: int) -> ir.Value:
        """Add the head, as `EncoderGraph.classify_tokens` describes."""
        return self.linear(hidden, "classifier", self.config.hidden_size, labels)

    def predict_tokens(self, hidden: ir.Value) -> ir.Value:
        """Add the head, as `EncoderGraph.predict_tokens` describes."""
        return next(self.predict_parts(hidden, self.config.vocab_size))

    def predict_parts(self, hidden: ir.Value, columns: int) -> Iterator[ir.Value]:
        """Add the head, as `EncoderGraph.predict_parts` describes. It has a bias if the gated units do."""
        config = self.config
        bias = "lm_head.bias" if config.mlp_bias else None
        name, inputs, outputs = OUTPUT_WEIGHTS, config.hidden_size, config.vocab_size
        return self.linear_parts(hidden, name, bias, inputs, outputs, columns)

    def _classify_rows(self, x: ir.Value, labels: int) -> ir.Value:
        """Return the logits of rows: (n, hidden_size) to (n, labels)."""
        width = self.config.hidden_size
        dense = activate(self.op, self.linear(x, "dense", width, width), "gelu")
        return self.linear(dense, "classifier", width, labels)

    def _mean(self, x: ir.Value) -> ir.Value:
        """Return the mean of each text: (positions, width) to (texts, width)."""
        return pool(self.op, self.layout, x, Pooling((PoolingMode.MEAN,)))
