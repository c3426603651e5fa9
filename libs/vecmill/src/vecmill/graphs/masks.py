"""The attention mask of a window, as a bias that is added to attention scores."""

import numpy as np
import onnx_ir as ir

from vecmill.graphs.batch_layout import MASKED_SCORE, Layout
from vecmill.graphs.ops import Ops
from vecmill.models.attention_window import BIDIRECTIONAL, AttentionWindow


def window_bias(op: Ops, layout: Layout, window: AttentionWindow) -> ir.Value:
    """Return 0 for keys that a query attends to, else `MASKED_SCORE`, float32.

    Shape: (texts, 1, 1 or longest, longest).
    """
    if window == BIDIRECTIONAL:
        return layout.key_bias
    queries, keys = op.Unsqueeze(layout.slots, op.constant([1])), op.Unsqueeze(layout.slots, op.constant([0]))
    distance = op.Sub(queries, keys)
    limits = []
    if window.before is not None:
        limits.append(op.LessOrEqual(distance, op.constant(window.before)))
    if window.after is not None:
        limits.append(op.GreaterOrEqual(distance, op.constant(-window.after)))
    is_inside = limits[0] if len(limits) == 1 else op.And(*limits)
    bias = op.Where(is_inside, op.constant(0, np.float32), op.constant(MASKED_SCORE, np.float32))
    # Min, not a sum: two masks must not add up to minus infinity.
    return op.Min(layout.key_bias, op.Unsqueeze(bias, op.constant([0, 1])))
