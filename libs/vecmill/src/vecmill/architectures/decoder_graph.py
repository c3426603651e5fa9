"""The graphs of decoder-only language models as encoders, as transformers computes them.

Pre-norm layers with rotary positions, grouped query attention and gated linear units. The architectures
differ only in biases, norms on heads and attention windows.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from vecmill.architectures.bidirectional_decoder import BidirectionalLlamaConfig
from vecmill.architectures.decoder import LISTWISE_WIDTH, DecoderConfig, HeadShape
from vecmill.graphs.batch_layout import Heads
from vecmill.graphs.encoder import EncoderGraph
from vecmill.graphs.last_tokens import LastTokens
from vecmill.graphs.ops import activate, soft_cap
from vecmill.graphs.rotary import Rotation, select_heads
from vecmill.graphs.softmax_attention import AttentionBias, Projection
from vecmill.graphs.stages import pool
from vecmill.models.stages import Pooling, PoolingMode

OUTPUT_WEIGHTS = "lm_head.weight"  # of a language model's head


@dataclass(frozen=True, slots=True)
class DecoderInputs:
    """The inputs of a layer besides hidden states: its attention bias, and its rotary positions, if any.

    `heads` are those of its attention. `last` are the tokens that the last layer computes, if these are not
    all.
    """

    bias: AttentionBias
    rotation: Rotation | None
    heads: HeadShape
    last: LastTokens | None = None


@dataclass(frozen=True, slots=True)
class DecoderNames:
    """The names of weights that differ between architectures: those of norms, and of two projections.

    `attended` projects the results of attention, and `projection` the encoder's output, if anything does.
    """

    final_norm: str = "norm"
    query_norm: str = "q_norm"
    key_norm: str = "k_norm"
    attended: str = "o_proj"
    projection: str = "linear"


class Decoder(EncoderGraph[DecoderConfig]):
    """The graph of decoder-only models, without a key-value cache."""

    prefix: ClassVar[str] = "model."
    computes_last_tokens: ClassVar = True
    names: ClassVar[DecoderNames] = DecoderNames()

    def encode(self) -> ir.Value:
        """Add the encoder, as `EncoderGraph.encode` describes."""
        op, layout, layers = self.op, self.layout, self.config.layers
        x = self.embed()
        biases = {layer.window: AttentionBias.of(op, layout, layer.window) for layer in dict.fromkeys(layers)}
        turned = dict.fromkeys((layer.rope, self.config.find_heads(layer).dim) for layer in layers)
        rotations = {
            (rope, dim): Rotation.of(op, layout, rope, dim) for rope, dim in turned if rope is not None
        }
        for index, layer in enumerate(layers):
            heads = self.config.find_heads(layer)
            rotation = None if layer.rope is None else rotations[layer.rope, heads.dim]
            last = layout.last_tokens if index == len(layers) - 1 else None
            inputs = DecoderInputs(biases[layer.window], rotation, heads, last)
            x = self.add_layer(x, f"layers.{index}", inputs)
        width, outputs = self.config.hidden_size, self.config.projection_size
        x = self.norm(x, self.names.final_norm, width)
        return x if outputs is None else self.linear(x, self.names.projection, width, outputs, bias=False)

    def embed(self) -> ir.Value:
        """Add the word embeddings, (positions, hidden_size)."""
        words = self.look_up("embed_tokens.weight", self.config.vocab_size, self.read_tokens())
        return self._multiply(words, self.config.embedding_multiplier)

    def read_tokens(self) -> ir.Value:
        """Return the tokens whose embeddings are looked up, (positions,)."""
        return self.layout.token_ids

    def add_layer(self, x: ir.Value, name: str, inputs: DecoderInputs) -> ir.Value:
        """Add one layer, (positions, hidden_size), or with the rows of `inputs.last`."""
        op, width, share = self.op, self.config.hidden_size, self.config.residual_multiplier
        attended = self.attend_by_groups(self.norm(x, f"{name}.input_layernorm", width), name, inputs)
        x = op.Add(self.select(x, inputs), self._multiply(attended, share))
        gated = self.gate(self.norm(x, f"{name}.post_attention_layernorm", width), f"{name}.mlp")
        return op.Add(x, self._multiply(gated, share))

    def select(self, x: ir.Value, inputs: DecoderInputs) -> ir.Value:
        """Return the rows of `x` (positions, width) that a layer computes."""
        return x if inputs.last is None else inputs.last.select(self.op, x)

    def norm(self, x: ir.Value, name: str, width: int) -> ir.Value:
        """Add a root-mean-square norm over the last axis, of `width`."""
        return self.rms_norm(x, self.vector(f"{name}.weight", width), self.config.rms_norm_eps)

    def gate(self, x: ir.Value, name: str) -> ir.Value:
        """Add the gated linear unit, (positions, hidden_size)."""
        op, config = self.op, self.config
        hidden, wide, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        gate = activate(op, self.linear(x, f"{name}.gate_proj", hidden, wide, bias=bias), config.hidden_act)
        value = self.linear(x, f"{name}.up_proj", hidden, wide, bias=bias)
        return self.linear(op.Mul(gate, value), f"{name}.down_proj", wide, hidden, bias=bias)

    def attend_by_groups(self, x: ir.Value, name: str, inputs: DecoderInputs) -> ir.Value:
        """Add attention with its projections, (positions, hidden_size)."""
        config = self.config
        heads, shared, dim = inputs.heads.count, inputs.heads.shared, inputs.heads.dim
        query_rotation = inputs.rotation
        if inputs.last is None:
            total = heads + 2 * shared
            projected = self.project(x, f"{name}.self_attn", inputs.heads)
            query = Projection(projected, Heads(0, heads, total, dim))
            key = Projection(projected, Heads(heads, shared, total, dim))
            value = Projection(projected, Heads(heads + shared, shared, total, dim))
        else:
            projected = self.project_part(x, f"{name}.self_attn", "kv", inputs.heads)
            key = Projection(projected, Heads(0, shared, 2 * shared, dim))
            value = Projection(projected, Heads(shared, shared, 2 * shared, dim))
            own = self.project_part(self.select(x, inputs), f"{name}.self_attn", "q", inputs.heads)
            query = Projection(own, Heads(0, heads, heads, dim))
            if query_rotation is not None:
                query_rotation = query_rotation.of_positions(self.op, inputs.last.positions)
        query = self.rotate(query, f"{name}.self_attn.{self.names.query_norm}", query_rotation)
        attended = self.attend(
            self.finish_query(query, inputs.last),
            self.rotate(key, f"{name}.self_attn.{self.names.key_norm}", inputs.rotation),
            self.finish_value(value),
            inputs.bias,
            config.attention_scale,
            cap=config.attn_logit_softcapping,
            last=inputs.last,
        )
        output = f"{name}.self_attn.{self.names.attended}"
        return self.linear(attended, output, heads * dim, config.hidden_size, bias=config.output_bias)

    def project(self, x: ir.Value, name: str, heads: HeadShape) -> ir.Value:
        """Return queries, keys and values of one product: (positions, (heads + 2 * shared) * dim)."""
        counts = (heads.count, heads.shared, heads.shared)
        outputs = {
            f"{name}.{part}_proj": count * heads.dim for part, count in zip("qkv", counts, strict=True)
        }
        bias = self.config.query_key_value_bias
        return self.linear_joined(x, f"{name}.qkv_proj", outputs, self.config.hidden_size, bias=bias)

    def project_part(self, x: ir.Value, name: str, part: str, heads: HeadShape) -> ir.Value:
        """Return the queries ("q"), or the keys and values ("kv"), of `project` alone."""
        config = self.config
        counts = {"q": heads.count, "k": heads.shared, "v": heads.shared}
        outputs = {f"{name}.{its}_proj": counts[its] * heads.dim for its in part}
        joined = f"{name}.{part}_proj"
        if joined in outputs:
            width = outputs[joined]
            return self.linear(x, joined, config.hidden_size, width, bias=config.query_key_value_bias)
        return self.linear_joined(x, joined, outputs, config.hidden_size, bias=config.query_key_value_bias)

    def rotate(self, projection: Projection, name: str, rotation: Rotation | None) -> Projection:
        """Return the heads of `projection`, rotated by `rotation`.

        With `query_key_norm` they are first normalised with the weights `name`.
        """
        heads = projection.heads
        selected = select_heads(self.op, projection)
        if self.config.query_key_norm:
            selected = self.norm(selected, name, heads.dim)
        if rotation is not None:
            selected = rotation.rotate(self.op, selected, heads.count)
        return Projection(selected, heads.selected())

    def finish_query(self, query: Projection, last: LastTokens | None) -> Projection:
        """Return rotated queries, of all positions or of `last`, as attention multiplies them with keys."""
        return query

    def finish_value(self, value: Projection) -> Projection:
        """Return values as attention adds them up."""
        return value

    def classified_slots(self) -> ir.Value | None:
        """Return the slot of the last token of each text."""
        return self._last_slots()

    def classify(self, hidden: ir.Value, labels: int) -> ir.Value:
        """Add the sequence classification head. Return logits at the last token, (texts, labels).

        As in transformers, padding tokens at the end of the text itself are skipped.
        """
        last = self.layout.read_at(hidden, self._last_slots)
        return self.linear(last, "score", self.config.hidden_size, labels, bias=False)

    def classify_tokens(self, hidden: ir.Value, labels: int) -> ir.Value:
        """Add the head, as `EncoderGraph.classify_tokens` describes."""
        return self.linear(hidden, "score", self.config.hidden_size, labels)

    def project_tokens(self, hidden: ir.Value) -> ir.Value:
        """Add the head, as `EncoderGraph.project_tokens` describes: two linear layers."""
        width, inner = self.config.hidden_size, self.config.hidden_size // 2
        inside = self.op.Relu(self.linear(hidden, "projector.0", width, inner, bias=False))
        return self.linear(inside, "projector.2", inner, LISTWISE_WIDTH, bias=False)

    def predict_tokens(self, hidden: ir.Value) -> ir.Value:
        """Add the head, as `EncoderGraph.predict_tokens` describes."""
        config = self.config
        table = self.weights.tensor(OUTPUT_WEIGHTS, (config.vocab_size, config.hidden_size))
        return self._finish_logits(self.op.Gemm(hidden, self.add(table), None, transB=1))

    def predict_chosen(self, hidden: ir.Value, token_ids: tuple[int, ...]) -> ir.Value:
        """Add the head, as `EncoderGraph.predict_chosen` describes.

        Weights of other logits are not read.
        """
        config = self.config
        rows = self.weights.rows(OUTPUT_WEIGHTS, (config.vocab_size, config.hidden_size), token_ids)
        return self._finish_logits(self.op.Gemm(hidden, self.add(rows), None, transB=1))

    def _last_slots(self) -> ir.Value:
        """Return the slot of the last token of each text that is no padding token, (texts,)."""
        op, layout = self.op, self.layout
        if self.config.pad_token_id is None:
            return op.Sub(layout.lengths, op.constant(1))
        ids = layout.by_text(layout.token_ids)
        counted = op.And(layout.is_token, op.Not(op.Equal(ids, op.constant(self.config.pad_token_id))))
        slots = op.Mul(op.Cast(counted, to=ir.DataType.INT64), layout.slots)
        return op.ReduceMax(slots, op.constant([1]), keepdims=0)

    def _finish_logits(self, logits: ir.Value) -> ir.Value:
        """Return logits divided by the model's scaling, and with its soft cap, if any."""
        logits = self._multiply(logits, 1 / self.config.logits_scaling)
        if self.config.final_logit_softcapping is None:
            return logits
        return soft_cap(self.op, logits, self.config.final_logit_softcapping)

    def _multiply(self, x: ir.Value, factor: float) -> ir.Value:
        return x if factor == 1 else self.op.Mul(x, self.op.constant(factor, np.float32))


class BidirectionalLlama(Decoder):
    """The graph of Llama as an encoder of NVIDIA: sequence classification reads the mean of all tokens."""

    config: BidirectionalLlamaConfig

    def classified_slots(self) -> ir.Value | None:
        """Return `None`: the head reads all tokens."""
        return None

    def classify(self, hidden: ir.Value, labels: int) -> ir.Value:
        """Add the sequence classification head. Return logits, (texts, labels)."""
        op = self.op
        mean = pool(op, self.layout, hidden, Pooling((PoolingMode.MEAN,)))
        logits = self.linear(mean, "score", self.config.hidden_size, labels, bias=False)
        return op.Div(logits, op.constant(self.config.temperature, np.float32))
