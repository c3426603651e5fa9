"""Rotary position embeddings, on tokens that lie end to end.

Queries and keys are turned before attention pads them, so padding costs nothing here. The angles are
computed from positions in the graph, once for all layers: tables would be of the longest input.
"""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from vecmill.graphs.layout import Heads, Layout
from vecmill.graphs.ops import Ops
from vecmill.models.rope import Rope


@dataclass(frozen=True, slots=True)
class Rotation:
    """Cosines and sines, both (positions, 1, dim / 2), float32."""

    cos: ir.Value
    sin: ir.Value
    dim: int

    @classmethod
    def of(cls, op: Ops, layout: Layout, rope: Rope, dim: int) -> "Rotation":
        """The angles of every position, for heads of `dim` columns."""
        # Rounded as transformers does: far from the start a last bit of a frequency is a visible angle.
        exponents = np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)
        frequencies = (1.0 / np.float32(rope.theta) ** exponents).astype(np.float32)
        frequencies /= np.float32(rope.factor)
        places = op.Unsqueeze(op.Cast(layout.token_positions, to=ir.DataType.FLOAT), op.constant([1, 2]))
        angles = op.Mul(places, op.constant(frequencies.reshape(1, 1, -1), np.float32))
        return cls(op.Cos(angles), op.Sin(angles), dim)

    def turn(self, op: Ops, heads: ir.Value) -> ir.Value:
        """Turn (positions, heads, dim): the halves of a head are the two coordinates of each angle."""
        half = self.dim // 2
        first, second = op.slice(heads, 0, half, axis=2), op.slice(heads, half, self.dim, axis=2)
        return op.Concat(
            op.Sub(op.Mul(first, self.cos), op.Mul(second, self.sin)),
            op.Add(op.Mul(second, self.cos), op.Mul(first, self.sin)),
            axis=2,
        )

    def turn_heads(self, op: Ops, layout: Layout, projected: ir.Value, heads: Heads) -> ir.Value:
        """Turn chosen heads of `projected` and lay them out by text: (texts, count, longest, dim)."""
        return layout.split_heads(self.turn(op, choose_heads(op, projected, heads)), alone(heads))


def choose_heads(op: Ops, projected: ir.Value, heads: Heads) -> ir.Value:
    """From (positions, total * dim), chosen heads: (positions, count, dim)."""
    first, stop = heads.first * heads.dim, (heads.first + heads.count) * heads.dim
    return op.Reshape(op.slice(projected, first, stop, axis=1), op.constant([-1, heads.count, heads.dim]))


def alone(heads: Heads) -> Heads:
    """Where heads lie once they have been chosen."""
    return Heads(0, heads.count, heads.count, heads.dim)
