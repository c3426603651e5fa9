"""The graphs of NomicBERT (Nussbaum et al., 2024) and GTE (Zhang et al., 2024), as in transformers.

BERT's post-norm layers with rotary positions instead of learned ones and gated units instead of two linear
layers. The architectures differ in biases and in the names of tensors. The published names and those of
transformers are both read.

NomicBERT may also have two linear layers, as in BERT, and in some layers a mixture of experts ("Training
Sparse Mixture Of Experts Text Embedding Models", Nussbaum and Duderstadt, 2025). transformers has neither, so
these have the published names alone.
"""

from functools import partial
from typing import ClassVar, TypeVar

import onnx_ir as ir

from vecmill.architectures.rotary_bert import (
    TRANSFORMERS_NAMES,
    ExpertSettings,
    NomicBertConfig,
    RotaryBertConfig,
    RotaryBertNames,
)
from vecmill.graphs.encoder import EncoderGraph
from vecmill.graphs.experts import Experts, choose_experts, mix_experts
from vecmill.graphs.last_tokens import LastTokens
from vecmill.graphs.ops import activate
from vecmill.graphs.rotary import LayerInputs, Rotation
from vecmill.graphs.softmax_attention import AttentionBias, Projection
from vecmill.models.weights import transpose

RotaryConfig = TypeVar("RotaryConfig", bound=RotaryBertConfig)


class RotaryBert(EncoderGraph[RotaryConfig]):
    """The graph that NomicBERT and GTE share."""

    computes_last_tokens: ClassVar = True

    def encode(self) -> ir.Value:
        """Add the encoder, as `EncoderGraph.encode` describes."""
        names = self._find_names()
        inputs = LayerInputs(
            AttentionBias.of(self.op, self.layout),
            Rotation.of(self.op, self.layout, self.config.rope, self.config.head_dim),
        )
        x = self._embed(names)
        for index in range(self.config.num_hidden_layers):
            name = f"{names.layers}.{index}"
            last = self.layout.last_tokens if index == self.config.num_hidden_layers - 1 else None
            attended = self._attend(x, name, names, inputs, last)
            rows = x if last is None else last.select(self.op, x)
            x = self._add_and_norm(rows, attended, f"{name}.{names.attention_norm}")
            x = self._add_and_norm(x, self.feed(x, index, names), f"{name}.{names.mlp_norm}")
        return x

    def feed(self, x: ir.Value, layer: int, names: RotaryBertNames) -> ir.Value:
        """Add the feed-forward layer of a layer: a gated unit."""
        op, config, name = self.op, self.config, f"{names.layers}.{layer}"
        hidden, wide = config.hidden_size, config.intermediate_size
        both = self._project(x, name, names.up_gate, 2 * wide, bias=config.biases.up)
        gate = activate(op, op.slice(both, wide, 2 * wide, axis=1), config.hidden_act)
        gated = op.Mul(gate, op.slice(both, 0, wide, axis=1))
        return self.linear(gated, f"{name}.{names.down}", wide, hidden, bias=config.biases.down)

    def classified_slots(self) -> ir.Value | None:
        """Return the first slot of each text."""
        return self.first_slots()

    def classify(self, hidden: ir.Value, labels: int) -> ir.Value:
        """Add the head, as `EncoderGraph.classify` describes."""
        width = self.config.hidden_size
        pooled = self.linear(self.first_tokens(hidden), "pooler.dense", width, width)
        return self.linear(self.op.Tanh(pooled), "classifier", width, labels)

    def classify_tokens(self, hidden: ir.Value, labels: int) -> ir.Value:
        """Add the head, as `EncoderGraph.classify_tokens` describes."""
        return self.linear(hidden, "classifier", self.config.hidden_size, labels)

    def _find_names(self) -> RotaryBertNames:
        is_renamed = self.weights.holds("layers.0.self_attn.q_proj.weight")
        return TRANSFORMERS_NAMES if is_renamed else self.config.published_names

    def _embed(self, names: RotaryBertNames) -> ir.Value:
        op, layout, config = self.op, self.layout, self.config
        x = self.look_up("embeddings.word_embeddings.weight", config.vocab_size, layout.token_ids)
        if config.type_vocab_size:
            types = self.look_up(
                "embeddings.token_type_embeddings.weight",
                config.type_vocab_size,
                self.known_types(config.type_vocab_size),
            )
            x = op.Add(x, types)
        return self.layer_norm(x, names.embeddings_norm, config.layer_norm_eps)

    def _add_and_norm(self, x: ir.Value, change: ir.Value, norm: str) -> ir.Value:
        return self.layer_norm(self.op.Add(x, change), norm, self.config.layer_norm_eps)

    def _attend(
        self,
        x: ir.Value,
        name: str,
        names: RotaryBertNames,
        inputs: LayerInputs,
        last: LastTokens | None,
    ) -> ir.Value:
        config = self.config
        count, dim, width = config.num_attention_heads, config.head_dim, config.hidden_size
        bias = config.biases.attention
        rotation = query_rotation = inputs.rotation
        parts = names.query_key_value
        if last is None:
            projected = self._project(x, name, parts, 3 * width, bias=bias)
            query, key, value = self.split_thirds(projected, count, dim)
        else:
            query, key, value = self._project_last(x, name, parts, last, bias=bias)
            query_rotation = rotation.of_positions(self.op, last.positions)
        query, key = query_rotation.rotate_heads(self.op, query), rotation.rotate_heads(self.op, key)
        attended = self.attend(query, key, value, inputs.bias, dim**-0.5, last=last)
        return self.linear(attended, f"{name}.{names.output}", width, width, bias=bias)

    def _project_last(
        self, x: ir.Value, name: str, parts: tuple[str, ...], last: LastTokens, *, bias: bool
    ) -> list[Projection]:
        """Return the queries of `last`, and keys and values. All have weights of their own, or one in all."""
        config = self.config
        count, dim, width = config.num_attention_heads, config.head_dim, config.hidden_size
        if len(parts) == 1:
            return self.split_last(x, last, f"{name}.{parts[0]}", count, dim, bias=bias)
        query = self.linear(last.select(self.op, x), f"{name}.{parts[0]}", width, width, bias=bias)
        others = self._project(x, name, parts[1:], 2 * width, bias=bias)
        return self.beside_queries(query, others, count, dim)

    def _project(self, x: ir.Value, name: str, parts: tuple[str, ...], width: int, *, bias: bool) -> ir.Value:
        """Return one product with the weights of `parts` of a layer, (positions, width)."""
        outputs = {f"{name}.{part}": width // len(parts) for part in parts}
        return self.linear_joined(x, " + ".join(outputs), outputs, self.config.hidden_size, bias=bias)


class NomicBert(RotaryBert[NomicBertConfig]):
    """The graph of NomicBERT (transformers' `NomicBertModel`)."""

    prefix: ClassVar[str] = "nomic_bert."

    def feed(self, x: ir.Value, layer: int, names: RotaryBertNames) -> ir.Value:
        """Add the feed-forward layer of a layer: experts, a gated unit or two linear layers."""
        config, name = self.config, f"{names.layers}.{layer}.mlp"
        if config.experts is not None and config.experts.are_in(layer):
            return self._mix(x, name, config.experts)
        if config.is_gated:
            return super().feed(x, layer, names)
        hidden, wide = config.hidden_size, config.intermediate_size
        inner = self.linear(x, f"{name}.fc1", hidden, wide, bias=config.biases.up)
        inner = activate(self.op, inner, config.hidden_act)
        return self.linear(inner, f"{name}.fc2", wide, hidden, bias=config.biases.down)

    def predict_tokens(self, hidden: ir.Value) -> ir.Value:
        """Add the head, as `EncoderGraph.predict_tokens` describes."""
        width = self.config.hidden_size
        dense = self.linear(hidden, "cls.predictions.transform.dense", width, width)
        x = activate(self.op, dense, self.config.hidden_act)
        x = self.layer_norm(x, "cls.predictions.transform.layer_norm", self.config.layer_norm_eps)
        return self.linear(x, "cls.predictions.decoder", width, self.config.vocab_size)

    def _mix(self, x: ir.Value, name: str, settings: ExpertSettings) -> ir.Value:
        """Add a mixture of experts. Shares are not scaled to a sum of 1, and one bias is added to the sum."""
        op, width, count = self.op, self.config.hidden_size, settings.count
        router = self.add(self.weights.tensor(f"{name}.router.layer.weight", (count, width)))
        # MatMul, which all engines compute in fp32: a rounded score may choose another expert.
        scores = op.MatMul(x, op.Transpose(router, perm=[1, 0]))
        chosen = choose_experts(op, op.Softmax(scores, axis=-1), settings.chosen, count)
        experts = Experts(count, width, partial(self._compute_expert, f"{name}.experts", count))
        mixed = mix_experts(op, self.layout, x, experts, chosen)
        return op.Add(mixed, self.vector(f"{name}.experts.bias", width))

    def _compute_expert(self, name: str, count: int, number: int, x: ir.Value) -> ir.Value:
        """Add expert `number`, whose weights are rows of the matrices of all experts: (n, width)."""
        op, wide = self.op, self.config.intermediate_size
        shape, rows = (count * wide, self.config.hidden_size), (number * wide, (number + 1) * wide)
        up = self.add(self.weights.part(f"{name}.mlp.w1", shape, *rows))
        down = self.add(transpose(self.weights.part(f"{name}.mlp.w2", shape, *rows)))
        inner = activate(op, op.Gemm(x, up, None, transB=1), self.config.hidden_act)
        return op.Gemm(inner, down, None, transB=1)


class Gte(RotaryBert[RotaryBertConfig]):
    """The graph of GTE (transformers' `GteModel`)."""

    prefix: ClassVar[str] = "gte."

    def predict_tokens(self, hidden: ir.Value) -> ir.Value:
        """Add the head, as `EncoderGraph.predict_tokens` describes."""
        width = self.config.hidden_size
        x = activate(self.op, self.linear(hidden, "lm_head.dense", width, width), "gelu")
        norm = next(
            (n for n in ("lm_head.norm", "lm_head.layer_norm") if self.weights.holds(f"{n}.weight")), None
        )
        x = self.layer_norm(x, norm or "lm_head.layer_norm", self.config.layer_norm_eps)
        return self.linear(x, "lm_head.decoder", width, self.config.vocab_size)


class New(Gte):
    """The graph of GTE as published: the same tensors under another prefix."""

    prefix: ClassVar[str] = "new."
