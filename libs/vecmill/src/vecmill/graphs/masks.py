"""Which keys a query may look at, as a bias that is added to attention scores."""

import numpy as np
import onnx_ir as ir

from vecmill.graphs.layout import MASKED_SCORE, Layout
from vecmill.graphs.ops import Ops
from vecmill.models.reach import EVERYWHERE, Reach


def reach_bias(op: Ops, layout: Layout, reach: Reach) -> ir.Value:
    """0 where a query reaches a key, `MASKED_SCORE` elsewhere: (texts, 1, 1 or longest, longest), float32."""
    if reach == EVERYWHERE:
        return layout.key_bias
    queries, keys = op.Unsqueeze(layout.slots, op.constant([1])), op.Unsqueeze(layout.slots, op.constant([0]))
    distance = op.Sub(queries, keys)
    limits = []
    if reach.before is not None:
        limits.append(op.LessOrEqual(distance, op.constant(reach.before)))
    if reach.after is not None:
        limits.append(op.GreaterOrEqual(distance, op.constant(-reach.after)))
    seen = limits[0] if len(limits) == 1 else op.And(*limits)
    bias = op.Where(seen, op.constant(0, np.float32), op.constant(MASKED_SCORE, np.float32))
    # Min, not a sum: two masks must not add up to minus infinity.
    return op.Min(layout.key_bias, op.Unsqueeze(bias, op.constant([0, 1])))
