"""Adds rotary position embeddings to queries and keys.

Queries and keys are rotated before attention pads them, so no padding is rotated. The graph computes the
angles from positions, once for all layers. Stored tables would have to cover the longest input.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from vecmill.errors import CorruptModel
from vecmill.graphs.batch_layout import Layout
from vecmill.graphs.ops import Ops
from vecmill.graphs.softmax_attention import AttentionBias, Projection
from vecmill.models.rope import Llama3Scaling, LongScaling, Rope, YarnScaling
from vecmill.values.aliases import FloatArray

ROTARY_OPERATOR = "RotaryEmbedding"


@dataclass(frozen=True, slots=True)
class Rotation:
    """The cosines and sines of all positions, both (positions, 1, dim / 2), float32.

    With ONNX Runtime's own `RotaryEmbedding` they are (positions, dim / 2), and `positions` the numbers of
    the positions, (1, positions), int64.
    """

    cos: ir.Value
    sin: ir.Value
    dim: int
    positions: ir.Value | None = None

    @classmethod
    def of(cls, op: Ops, layout: Layout, rope: Rope, dim: int) -> "Rotation":
        """Add the angles of every position, for heads of `dim` dimensions."""
        positions = op.Unsqueeze(op.Cast(layout.token_positions, to=ir.DataType.FLOAT), op.constant([1, 2]))
        angles = op.Mul(positions, _choose_frequencies(op, layout, rope, dim))
        cos, sin = op.Cos(angles), op.Sin(angles)
        if isinstance(rope.scaling, YarnScaling | LongScaling) and rope.scaling.attention != 1:
            attention = op.constant(rope.scaling.attention, np.float32)
            cos, sin = op.Mul(cos, attention), op.Mul(sin, attention)
        if not op.has_runtime(ROTARY_OPERATOR):
            return cls(cos, sin, dim)
        numbers = op.Range(op.constant(0), op.Size(layout.token_positions), op.constant(1))
        cos, sin = (op.Squeeze(part, op.constant([1])) for part in (cos, sin))
        return cls(cos, sin, dim, op.Unsqueeze(numbers, op.constant([0])))

    def of_positions(self, op: Ops, positions: ir.Value) -> "Rotation":
        """Return the rotation of some positions, (n,) int64."""
        if self.positions is not None:
            return replace(self, positions=op.Unsqueeze(positions, op.constant([0])))
        return replace(self, cos=op.Gather(self.cos, positions), sin=op.Gather(self.sin, positions))

    def rotate(self, op: Ops, heads: ir.Value, count: int) -> ir.Value:
        """Rotate `count` heads, (positions, count, dim).

        The halves of a head are the coordinates of the rotated pairs.
        """
        if self.positions is not None:
            rows = op.Reshape(heads, op.constant([1, -1, count * self.dim]))
            rotated = op.add_runtime(
                ROTARY_OPERATOR, rows, self.positions, self.cos, self.sin, num_heads=count
            )
            return op.Reshape(rotated, op.constant([-1, count, self.dim]))
        half = self.dim // 2
        first, second = op.slice(heads, 0, half, axis=2), op.slice(heads, half, self.dim, axis=2)
        return op.Concat(
            op.Sub(op.Mul(first, self.cos), op.Mul(second, self.sin)),
            op.Add(op.Mul(second, self.cos), op.Mul(first, self.sin)),
            axis=2,
        )

    def rotate_heads(self, op: Ops, projection: Projection) -> Projection:
        """Rotate the heads of a projection. Return them as the only heads of another."""
        rotated = self.rotate(op, select_heads(op, projection), projection.heads.count)
        return Projection(rotated, projection.heads.selected())


@dataclass(frozen=True, slots=True)
class LayerInputs:
    """The inputs of a layer besides hidden states: its attention bias and its rotary positions."""

    bias: AttentionBias
    rotation: Rotation


def rotary_frequencies(rope: Rope, dim: int, *, long: bool = False) -> FloatArray:
    """Return the frequencies in radians per token, (dim / 2,); `long` selects the factors `LongScaling.long`.

    Rounded as in transformers: at large positions the last bit of a frequency changes the angle visibly.
    Raises `CorruptModel` if the number of scaling factors is wrong.
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
                    f"heads of {dim} dimensions need {len(periods)}."
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
        last += 0.001  # avoids a division by 0, as in transformers
    indices = np.arange(len(periods), dtype=np.float32)
    ramp = np.clip((indices - np.float32(first)) / np.float32(last - first), 0, 1)
    kept: FloatArray = 1 - ramp.astype(np.float32)
    slowed: FloatArray = (1 - kept) / (np.float32(scaling.factor) * periods)
    return slowed + kept / periods


def _choose_frequencies(op: Ops, layout: Layout, rope: Rope, dim: int) -> ir.Value:
    """Return the frequencies of every position: (1 or positions, 1, dim / 2)."""
    short = op.constant(rotary_frequencies(rope, dim).reshape(1, 1, -1), np.float32)
    if not isinstance(rope.scaling, LongScaling):
        return short
    long = op.constant(rotary_frequencies(rope, dim, long=True).reshape(1, 1, -1), np.float32)
    is_long = op.Greater(layout.lengths, op.constant(rope.scaling.trained_tokens))
    by_slot = op.Expand(op.Unsqueeze(is_long, op.constant([1])), op.Shape(layout.is_token))
    # From texts to positions, as for attention.
    by_slot = op.Unsqueeze(op.Cast(by_slot, to=ir.DataType.FLOAT), op.constant([1, 3]))
    of_long_text = op.Reshape(layout.merge_heads(by_slot, width=1), op.constant([-1, 1, 1]))
    return op.Where(op.Greater(of_long_text, op.constant(0, np.float32)), long, short)


def select_heads(op: Ops, projection: Projection) -> ir.Value:
    """Return the heads of `projection`: (positions, total * dim) to (positions, count, dim)."""
    heads = projection.heads
    first, stop = heads.first * heads.dim, (heads.first + heads.count) * heads.dim
    selected = op.slice(projection.values, first, stop, axis=1)
    return op.Reshape(selected, op.constant([-1, heads.count, heads.dim]))
