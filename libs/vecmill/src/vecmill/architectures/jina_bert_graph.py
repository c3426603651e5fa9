"""The graph of JinaBERT (Günther et al., "Jina Embeddings 2", 2023): BERT without position embeddings.

A bias on attention scores that falls with the distance (ALiBi), in both directions, takes their place, and
gated units (Shazeer, "GLU Variants Improve Transformer", 2020) that of the two linear layers. Sources of the
names and of the order of the norms: jinaai/jina-bert-implementation and jinaai/jina-bert-v2-qk-post-norm. The
second code normalises queries and keys, and has one more norm after attention:

    jina-bert-implementation      x = norm(x + attended)
    jina-bert-v2-qk-post-norm     x = norm(x + norm(x + attended))
"""

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from vecmill.architectures.bert_graph import Bert
from vecmill.architectures.jina_bert import JinaBertConfig
from vecmill.graphs.distances import LinearBiases
from vecmill.graphs.last_tokens import LastTokens
from vecmill.graphs.ops import activate
from vecmill.graphs.softmax_attention import AttentionBias, Projection


@dataclass(frozen=True, slots=True)
class GatedNames:
    """The names of the tensors of a layer's gated unit, without its prefix.

    The product with `gates` has the gates and the values side by side, the gates first if `has_gates_first`.
    """

    gates: str
    output: str
    norm: str
    has_gates_first: bool


_GATED = GatedNames("mlp.gated_layers", "mlp.wo", "mlp.layernorm", has_gates_first=True)
_GATED_POST_NORM = GatedNames("mlp.up_gated_layer", "mlp.down_layer", "layer_norm_2", has_gates_first=False)


class JinaBert(Bert[JinaBertConfig]):
    """The graph of JinaBERT, by the names of both codes."""

    computes_last_tokens: ClassVar = False
    has_more_norms: bool

    def encode(self) -> ir.Value:
        """Add the encoder, as `EncoderGraph.encode` describes."""
        self.has_more_norms = self.weights.holds(f"{self.layer_name(0)}.layer_norm_1.weight")
        return super().encode()

    def embed(self) -> ir.Value:
        """Add word and type embeddings, normalised: (positions, hidden_size)."""
        config = self.config
        words = self.look_up("embeddings.word_embeddings.weight", config.vocab_size, self.layout.token_ids)
        if config.type_vocab_size:
            table = "embeddings.token_type_embeddings.weight"
            words = self.op.Add(words, self.look_up(table, config.type_vocab_size, self.types()))
        return self.norm(words, "embeddings.LayerNorm")

    def attention_bias(self) -> AttentionBias:
        """Return the bias of attention scores: the distance times the slope of the head."""
        biases = LinearBiases.of(self.config.num_attention_heads)
        return AttentionBias.of(self.op, self.layout, distances=biases)

    def layer(self, x: ir.Value, name: str, bias: AttentionBias, last: LastTokens | None = None) -> ir.Value:
        """Add one layer: attention and a gated unit, each with a residual and a norm."""
        assert last is None
        op, names = self.op, self.layer_names
        hidden = self.config.hidden_size
        attended = self.linear(self.attend_by(x, name, bias), f"{name}.{names.attended}", hidden, hidden)
        attended = self.norm(op.Add(attended, x), f"{name}.{names.attended_norm}")
        if self.has_more_norms:
            attended = self.norm(op.Add(x, attended), f"{name}.layer_norm_1")
        return self._gate(attended, name, _GATED_POST_NORM if self.has_more_norms else _GATED)

    def project(self, x: ir.Value, name: str) -> list[Projection]:
        """Return queries, keys and values; queries and keys are normalised over all heads at once."""
        query, key, value = super().project(x, name)
        if not self.has_more_norms:
            return [query, key, value]
        parts = ((query, "layer_norm_q"), (key, "layer_norm_k"))
        return [*(self._normalize(part, f"{name}.attention.self.{norm}") for part, norm in parts), value]

    def _normalize(self, part: Projection, norm: str) -> Projection:
        heads = part.heads
        first, stop = heads.first * heads.dim, (heads.first + heads.count) * heads.dim
        own = self.op.slice(part.values, first, stop, axis=1)
        return Projection(self.norm(own, norm), heads.selected())

    def _gate(self, x: ir.Value, name: str, names: GatedNames) -> ir.Value:
        op, config = self.op, self.config
        hidden, wide = config.hidden_size, config.intermediate_size
        both = self.linear(x, f"{name}.{names.gates}", hidden, 2 * wide, bias=False)
        halves = [op.slice(both, 0, wide, axis=1), op.slice(both, wide, 2 * wide, axis=1)]
        gate, value = halves if names.has_gates_first else reversed(halves)
        gated = op.Mul(activate(op, gate, config.gate_act), value)
        output = self.linear(gated, f"{name}.{names.output}", wide, hidden)
        return self.norm(op.Add(output, x), f"{name}.{names.norm}")
