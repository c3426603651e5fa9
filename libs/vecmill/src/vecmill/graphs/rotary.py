"""Rotary position embeddings, on tokens that lie end to end.

Queries and keys are turned before attention pads them, so padding costs nothing here. The angles are
computed from positions in the graph, once for all layers: tables would be of the longest input.
"""

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from vecmill.errors import CorruptModel
from vecmill.graphs.layout import Heads, Layout
from vecmill.graphs.ops import Ops
from vecmill.models.rope import Llama3Scaling, LongScaling, Rope, YarnScaling
from vecmill.types import FloatArray


@dataclass(frozen=True, slots=True)
class Rotation:
    """Cosines and sines, both (positions, 1, dim / 2), float32."""

    cos: ir.Value
    sin: ir.Value
    dim: int

    @classmethod
    def of(cls, op: Ops, layout: Layout, rope: Rope, dim: int) -> "Rotation":
        """The angles of every position, for heads of `dim` columns."""
        places = op.Unsqueeze(op.Cast(layout.token_positions, to=ir.DataType.FLOAT), op.constant([1, 2]))
        angles = op.Mul(places, _choose_frequencies(op, layout, rope, dim))
        cos, sin = op.Cos(angles), op.Sin(angles)
        if isinstance(rope.scaling, YarnScaling | LongScaling) and rope.scaling.attention != 1:
            attention = op.constant(rope.scaling.attention, np.float32)
            cos, sin = op.Mul(cos, attention), op.Mul(sin, attention)
        return cls(cos, sin, dim)

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


def rotary_frequencies(rope: Rope, dim: int, *, long: bool = False) -> FloatArray:
    """Radians a token, (dim / 2,); `long` for texts that `LongScaling` calls so.

    Rounded as transformers does: far from the start a last bit of a frequency is a visible angle.
    Raises `CorruptModel` for a scaling of another width.
    """
    exponents = np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)
    periods: FloatArray = np.power(np.float32(rope.theta), exponents, dtype=np.float32)
    frequencies: FloatArray = np.float32(1) / periods
    match rope.scaling:
        case None:
            return frequencies / np.float32(rope.factor)
        case Llama3Scaling():
            return _scale_by_turns(frequencies, rope.scaling)
        case YarnScaling():
            return _scale_by_index(periods, rope, rope.scaling)
        case LongScaling():
            factors = np.array(rope.scaling.long if long else rope.scaling.short, np.float32)
            if factors.shape != periods.shape:
                raise CorruptModel(
                    f"config.json: {'long_factor' if long else 'short_factor'} lists {len(factors)} numbers; "
                    f"heads of {dim} columns need {len(periods)}."
                )
            return np.float32(1) / (factors * periods)


def _scale_by_turns(frequencies: FloatArray, scaling: Llama3Scaling) -> FloatArray:
    turns = np.float32(scaling.trained_tokens) / (np.float32(2 * math.pi) / frequencies)
    kept: FloatArray = np.clip((turns - scaling.low) / (scaling.high - scaling.low), 0, 1).astype(np.float32)
    return (1 - kept) * frequencies / np.float32(scaling.factor) + kept * frequencies


def _scale_by_index(periods: FloatArray, rope: Rope, scaling: YarnScaling) -> FloatArray:
    dim = 2 * len(periods)

    def index_of(turns: float) -> float:
        ratio = scaling.trained_tokens / (turns * 2 * math.pi)
        return dim * math.log(ratio) / (2 * math.log(rope.theta))

    first, last = index_of(scaling.fast), index_of(scaling.slow)
    if scaling.rounded:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    if first == last:
        last += 0.001  # as transformers keeps from dividing by nothing
    indices = np.arange(len(periods), dtype=np.float32)
    ramp = np.clip((indices - np.float32(first)) / np.float32(last - first), 0, 1)
    kept: FloatArray = 1 - ramp.astype(np.float32)
    slowed: FloatArray = (1 - kept) / (np.float32(scaling.factor) * periods)
    return slowed + kept / periods


def _choose_frequencies(op: Ops, layout: Layout, rope: Rope, dim: int) -> ir.Value:
    """The frequencies of every position: (1 or positions, 1, dim / 2)."""
    usual = op.constant(rotary_frequencies(rope, dim).reshape(1, 1, -1), np.float32)
    if not isinstance(rope.scaling, LongScaling):
        return usual
    others = op.constant(rotary_frequencies(rope, dim, long=True).reshape(1, 1, -1), np.float32)
    is_long = op.Greater(layout.lengths, op.constant(rope.scaling.trained_tokens))
    by_slot = op.Expand(op.Unsqueeze(is_long, op.constant([1])), op.Shape(layout.is_token))
    # From texts to positions, as attention goes.
    by_slot = op.Unsqueeze(op.Cast(by_slot, to=ir.DataType.FLOAT), op.constant([1, 3]))
    of_long_text = op.Reshape(layout.merge_heads(by_slot, width=1), op.constant([-1, 1, 1]))
    return op.Where(op.Greater(of_long_text, op.constant(0, np.float32)), others, usual)


def choose_heads(op: Ops, projected: ir.Value, heads: Heads) -> ir.Value:
    """From (positions, total * dim), chosen heads: (positions, count, dim)."""
    first, stop = heads.first * heads.dim, (heads.first + heads.count) * heads.dim
    return op.Reshape(op.slice(projected, first, stop, axis=1), op.constant([-1, heads.count, heads.dim]))


def alone(heads: Heads) -> Heads:
    """Where heads lie once they have been chosen."""
    return Heads(0, heads.count, heads.count, heads.dim)
