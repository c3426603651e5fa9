"""From the encoder's last hidden state to finished rows, stage by stage."""

import onnx_ir as ir

from vecmill.graphs.layout import Layout
from vecmill.graphs.ops import Ops
from vecmill.graphs.pooling import normalize, pool
from vecmill.models.stages import Normalize, Pooling, Stage


def apply_stage(op: Ops, layout: Layout, stage: Stage, x: ir.Value) -> ir.Value:
    """Add one stage: before pooling `x` is (positions, width), afterwards (texts, width)."""
    match stage:
        case Pooling():
            return pool(op, layout, x, stage)
        case Normalize():
            return normalize(op, x)
