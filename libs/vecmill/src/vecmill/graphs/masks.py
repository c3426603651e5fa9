"""The attention mask of a window, as a bias that is added to attention scores."""

import numpy as np
import onnx_ir as ir

from vecmill.graphs.batch_layout import MASKED_SCORE, Layout
from vecmill.graphs.ops import Ops
from vecmill.models.attention_window import BIDIRECTIONAL, AttentionWindow


def window_bias(op: Ops, layout: Layout, window: AttentionWindow) -> ir.Value:
    """Return 0 for keys that a query attends to, else `MASKED_SCORE`, float32, for texts that are not long.

    Shape: (texts, 1, 1 or longest, longest).
    """
    if window == BIDIRECTIONAL:
        return layout.key_bias
    bias = mask_outside(op, window, layout.short_slots, layout.short_slots)
    # Min, not a sum: two masks must not add up to minus infinity.
    return op.Min(layout.key_bias, op.Unsqueeze(bias, op.constant([0, 1])))


def mask_outside(op: Ops, window: AttentionWindow, queries: ir.Value, keys: ir.Value) -> ir.Value:
    """Return 0 for slots `keys` in the window of slots `queries`, else `MASKED_SCORE`: (queries, keys).

    At least one side of the window must be limited.
    """
    queries, keys = op.Unsqueeze(queries, op.constant([1])), op.Unsqueeze(keys, op.constant([0]))
    # Bounds instead of distances: a distance for each pair would take 8 bytes.
    limits = []
    if window.before is not None:
        limits.append(op.GreaterOrEqual(keys, op.Sub(queries, op.constant(window.before))))
    if window.after is not None:
        limits.append(op.LessOrEqual(keys, op.Add(queries, op.constant(window.after))))
    is_inside = limits[0] if len(limits) == 1 else op.And(*limits)
    return op.Where(is_inside, op.constant(0, np.float32), op.constant(MASKED_SCORE, np.float32))
