"""Position ids of RoBERTa and MPNet, which skip padding tokens."""

import onnx_ir as ir

from vecmill.graphs.batch_layout import Layout
from vecmill.graphs.ops import Ops


def positions_after_padding(op: Ops, layout: Layout, padding: int) -> ir.Value:
    """Return transformers' `create_position_ids_from_input_ids`: the position of each token, (positions,).

    The first position is `padding` + 1. A padding token inside a text has position `padding` and is not
    counted.
    """
    counted = op.Cast(
        op.Not(op.Equal(layout.token_ids, op.constant(padding))),
        to=ir.DataType.INT64,
    )
    by_text = layout.by_text(op.Unsqueeze(counted, op.constant([1])))
    sums = op.Unsqueeze(op.CumSum(by_text, op.constant(1)), op.constant([1]))
    count = op.Squeeze(layout.merge_heads(sums, width=1), op.constant([1]))
    return op.Add(op.Mul(count, counted), op.constant(padding))
