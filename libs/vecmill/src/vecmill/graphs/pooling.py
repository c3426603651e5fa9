"""From one row a token to one row a text.

The rules are those of sentence-transformers 6.2 (`sentence_transformer/modules/pooling.py` and
`base/modules/normalize.py`), down to what happens when nothing is left to pool.
"""

import numpy as np
import onnx_ir as ir

from vecmill.graphs.layout import Layout
from vecmill.graphs.ops import Ops
from vecmill.models.stages import Pooling, PoolingMode


def pool(op: Ops, layout: Layout, hidden: ir.Value, pooling: Pooling) -> ir.Value:
    """From `hidden` (positions, width) to (texts, width * modes), float32."""
    pooled = [_pool_one(op, layout, hidden, pooling, mode) for mode in pooling.modes]
    return pooled[0] if len(pooled) == 1 else op.Concat(*pooled, axis=1)


def _pool_one(op: Ops, layout: Layout, hidden: ir.Value, pooling: Pooling, mode: PoolingMode) -> ir.Value:
    match mode:
        case PoolingMode.CLS:
            return _pool_first(op, layout, hidden, pooling)
        case PoolingMode.MEAN:
            return _pool_mean(op, layout, hidden, pooling)


def normalize(op: Ops, rows: ir.Value) -> ir.Value:
    """Rows of unit length; a row of zeros stays one. (texts, width), float32."""
    length = op.ReduceL2(rows, op.constant([1]), keepdims=1)
    return op.Div(rows, op.Max(length, op.constant(1e-12, np.float32)))


def _pool_first(op: Ops, layout: Layout, hidden: ir.Value, pooling: Pooling) -> ir.Value:
    first = op.Mul(layout.prompt_lengths, op.constant(0))
    if not pooling.include_prompt:
        # A text that is all prompt has no token after it: the reference takes the first.
        first = op.Where(op.Less(layout.prompt_lengths, layout.lengths), layout.prompt_lengths, first)
    return layout.token_at(hidden, first)


def _pool_mean(op: Ops, layout: Layout, hidden: ir.Value, pooling: Pooling) -> ir.Value:
    counted = layout.is_token
    if not pooling.include_prompt:
        prompt_lengths = op.Unsqueeze(layout.prompt_lengths, op.constant([1]))
        counted = op.And(counted, op.GreaterOrEqual(layout.slots, prompt_lengths))
    weights = op.Cast(counted, to=ir.DataType.FLOAT)
    # A product of matrices sums the rows without a masked copy of them.
    sums = op.MatMul(op.Unsqueeze(weights, op.constant([1])), layout.by_text(hidden))
    counts = op.ReduceSum(weights, op.constant([1]), keepdims=1)
    return op.Div(op.Squeeze(sums, op.constant([1])), op.Max(counts, op.constant(1e-9, np.float32)))
