"""Relative position buckets, and the attention biases by distance.

A distance is the position of the key minus that of the query. `LinearBiases` are computed from it;
`DistanceBiases` are weights of the model. Near distances have a bucket each, far
distances share buckets. All distances beyond a farthest one share the last bucket, so the table is small.
"""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from vecmill.graphs.ops import Ops
from vecmill.values.aliases import IntArray


def distance_buckets(count: int, farthest: int) -> IntArray:
    """Return the bucket of each distance from -farthest to farthest, (2 * farthest + 1,), of `count` in all.

    Half of the buckets are for keys ahead. In each half, half of the buckets hold one distance each, and the
    others hold logarithmically growing ranges. Computed in single precision, like transformers'
    `T5Attention._relative_position_bucket`.
    """
    distances = np.arange(-farthest, farthest + 1)
    one_side = count // 2
    exact = one_side // 2
    far = np.abs(distances)
    steps = np.log(np.maximum(far, 1).astype(np.float32) / np.float32(exact)) / np.float32(
        np.log(farthest / exact)
    )
    wide = exact + (steps * np.float32(one_side - exact)).astype(np.int64)
    bucket = np.where(far < exact, far, np.minimum(wide, one_side - 1))
    return np.asarray(bucket + one_side * (distances > 0), np.int64)


def disentangled_buckets(count: int, farthest: int) -> IntArray:
    """Return the bucket of each distance from -farthest to farthest, (2 * farthest + 1,), `count` a side.

    On each side, half of the buckets hold one distance each, and the others hold logarithmically growing
    ranges. With a `count` of 0 the distances themselves are returned. Distances to keys behind are positive
    here. Computed in single precision, like transformers' `make_log_bucket_position` in `deberta_v2`.
    """
    behind = np.arange(farthest, -farthest - 1, -1)
    if not count:
        return behind
    middle = count // 2
    far = np.maximum(np.abs(behind), middle).astype(np.float32) / np.float32(middle)
    steps = np.log(far) / np.log(np.float32((farthest - 1) / middle)) * np.float32(middle - 1)
    wide = (np.ceil(steps) + middle).astype(np.int64)
    return np.where(np.abs(behind) <= middle, behind, wide * np.sign(behind))


@dataclass(frozen=True, slots=True)
class DistanceBiases:
    """The biases of attention scores by distance.

    `biases` (2 * farthest + 1, heads) has one row for each distance from -farthest to farthest. Larger
    distances use the outermost rows.
    """

    biases: ir.Value
    farthest: int

    def between(self, op: Ops, queries: ir.Value, keys: ir.Value) -> ir.Value:
        """Return the bias of each pair of positions in a text: (1, heads, queries, keys), float32."""
        by_distance = op.Transpose(self.biases, perm=[1, 0])
        pairs = op.Gather(by_distance, find_distances(op, queries, keys, self.farthest), axis=1)
        return op.Unsqueeze(pairs, op.constant([0]))


@dataclass(frozen=True, slots=True)
class LinearBiases:
    """Biases that fall with the distance in either direction, by one of `slopes` for each head (ALiBi)."""

    slopes: tuple[float, ...]

    @classmethod
    def of(cls, heads: int) -> "LinearBiases":
        """Return the slopes of Press et al., "Train Short, Test Long", ICLR 2022, for a number of heads.

        A power of two, n, has the slopes 2^(-8/n), 2^(-16/n), ... 2^-8. Other numbers have those of the next
        smaller power of two, followed by every other slope of twice that power.
        """
        power = 1 << (heads.bit_length() - 1)
        more = _halving_slopes(2 * power)[::2]
        return cls((*_halving_slopes(power), *more[: heads - power]))

    def between(self, op: Ops, queries: ir.Value, keys: ir.Value) -> ir.Value:
        """Return the bias of each pair of positions in a text: (1, heads, queries, keys), float32."""
        places = [op.Cast(part, to=ir.DataType.FLOAT) for part in (queries, keys)]
        ahead = op.Sub(op.Unsqueeze(places[1], op.constant([0])), op.Unsqueeze(places[0], op.constant([1])))
        slopes = np.asarray(self.slopes).reshape(1, -1, 1, 1)
        return op.Mul(op.Unsqueeze(op.Abs(ahead), op.constant([0, 1])), op.constant(-slopes, np.float32))


def _halving_slopes(count: int) -> list[float]:
    return [2 ** (-8 * number / count) for number in range(1, count + 1)]


def find_distances(op: Ops, queries: ir.Value, keys: ir.Value, farthest: int) -> ir.Value:
    """Return the index of each pair's distance among those from -farthest to farthest: (queries, keys)."""
    ahead = op.Sub(op.Unsqueeze(keys, op.constant([0])), op.Unsqueeze(queries, op.constant([1])))
    near = op.Clip(ahead, op.constant(-farthest), op.constant(farthest))
    return op.Add(near, op.constant(farthest))
