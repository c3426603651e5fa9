"""The graph of Qwen3 with mixtures of experts, as transformers' `Qwen3MoeModel` computes it.

transformers keeps the matrices of all experts of a layer in two tensors, and published files have three
matrices for each expert. Both are read.
"""

import functools
from dataclasses import replace

import onnx_ir as ir

from vecmill.architectures.decoder_graph import Decoder
from vecmill.architectures.qwen_moe import Qwen3MoeConfig, RoutedExperts
from vecmill.graphs.experts import Experts, choose_experts, mix_experts, normalise_shares
from vecmill.graphs.ops import activate
from vecmill.models.weights import StoredTensor


class Qwen3Moe(Decoder):
    """The graph of Qwen3 whose gated units are experts, in some layers or all."""

    config: Qwen3MoeConfig

    def gate(self, x: ir.Value, name: str) -> ir.Value:
        """Add the gated linear unit, or the experts, (positions, hidden_size)."""
        experts, layer = self.config.experts, int(name.split(".")[1])
        if experts is None or layer not in experts.layers:
            return super().gate(x, name)
        return self._mix(x, name, experts)

    def _mix(self, x: ir.Value, name: str, settings: RoutedExperts) -> ir.Value:
        op, width, count = self.op, self.config.hidden_size, settings.count
        router = self.add(self.weights.tensor(f"{name}.gate.weight", (count, width)))
        # MatMul, which all engines compute in fp32: a rounded score may choose another expert.
        scores = op.MatMul(x, op.Transpose(router, perm=[1, 0]))
        chosen = choose_experts(op, op.Softmax(scores, axis=-1), settings.chosen, count)
        if settings.normalised:
            chosen = normalise_shares(op, chosen)
        compute = functools.partial(self._compute_expert, f"{name}.experts", settings)
        return mix_experts(op, self.layout, x, Experts(count, width, compute), chosen)

    def _compute_expert(self, name: str, settings: RoutedExperts, number: int, x: ir.Value) -> ir.Value:
        """Add expert `number`: (n, hidden_size) to (n, hidden_size)."""
        op, width, wide = self.op, self.config.hidden_size, settings.width
        if self.weights.holds(f"{name}.gate_up_proj"):
            both = self._part(f"{name}.gate_up_proj", settings.count, number, (2 * wide, width))
            product = op.Gemm(x, self.add(both), None, transB=1)
            gate, value = op.slice(product, 0, wide, axis=1), op.slice(product, wide, 2 * wide, axis=1)
            down = self._part(f"{name}.down_proj", settings.count, number, (width, wide))
            gated = op.Mul(activate(op, gate, self.config.hidden_act), value)
            return op.Gemm(gated, self.add(down), None, transB=1)
        own = f"{name}.{number}"
        gate = activate(
            op, self.linear(x, f"{own}.gate_proj", width, wide, bias=False), self.config.hidden_act
        )
        value = self.linear(x, f"{own}.up_proj", width, wide, bias=False)
        return self.linear(op.Mul(gate, value), f"{own}.down_proj", wide, width, bias=False)

    def _part(self, name: str, count: int, number: int, shape: tuple[int, int]) -> StoredTensor:
        """Return the matrix of one expert, of `shape`, from the tensor of all `count` experts."""
        part = self.weights.part(name, (count, *shape), number, number + 1)
        return replace(part, shape=shape, read=lambda: part.read().reshape(shape))
