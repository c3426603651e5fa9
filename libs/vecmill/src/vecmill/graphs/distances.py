"""What attention adds to scores for how far a key is from its query.

A distance is the key's place less the query's. Near distances have a bucket each, far ones share buckets
and beyond a farthest one all are alike, so the whole is a small table.
"""

import numpy as np
import onnx_ir as ir

from vecmill.graphs.layout import Layout
from vecmill.graphs.ops import Ops
from vecmill.types import IntArray


def distance_buckets(count: int, farthest: int) -> IntArray:
    """The bucket of each distance from -farthest to farthest, (2 * farthest + 1,), of `count` in all.

    Half of the buckets are for keys ahead. Of each half, half hold one distance each, and the rest more
    and more. As transformers' `T5Attention._relative_position_bucket`, in its single precision.
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
    """The bucket of each distance from -farthest to farthest, (2 * farthest + 1,), of `count` on each side.

    Half of a side's buckets hold one distance each, the rest more and more; 0 stands for no buckets at
    all. Distances to keys behind are positive here. As transformers' `make_log_bucket_position` in
    `deberta_v2`, in its single precision.
    """
    behind = np.arange(farthest, -farthest - 1, -1)
    if not count:
        return behind
    middle = count // 2
    far = np.maximum(np.abs(behind), middle).astype(np.float32) / np.float32(middle)
    steps = np.log(far) / np.log(np.float32((farthest - 1) / middle)) * np.float32(middle - 1)
    wide = (np.ceil(steps) + middle).astype(np.int64)
    return np.where(np.abs(behind) <= middle, behind, wide * np.sign(behind))


def distance_bias(op: Ops, layout: Layout, biases: ir.Value, farthest: int) -> ir.Value:
    """The bias of each pair of slots: (1, heads, longest, longest), float32.

    `biases` (2 * farthest + 1, heads) has one row for each distance from -farthest to farthest; beyond, the
    outermost count.
    """
    ahead = op.Sub(op.Unsqueeze(layout.slots, op.constant([0])), op.Unsqueeze(layout.slots, op.constant([1])))
    near = op.Clip(ahead, op.constant(-farthest), op.constant(farthest))
    by_distance = op.Transpose(biases, perm=[1, 0])
    pairs = op.Gather(by_distance, op.Add(near, op.constant(farthest)), axis=1)
    return op.Unsqueeze(pairs, op.constant([0]))
