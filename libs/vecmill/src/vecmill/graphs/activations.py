"""Activations by transformers' names for them."""

import onnx_ir as ir

from vecmill.graphs.ops import Ops


def activate(op: Ops, x: ir.Value, name: str) -> ir.Value:
    """Apply the activation called `name`, one of `models.bert.ACTIVATIONS`."""
    match name:
        case "relu":
            return op.Relu(x)
        case "silu" | "swish":
            return op.Mul(x, op.Sigmoid(x))
        case "gelu_new" | "gelu_pytorch_tanh":
            return op.Gelu(x, approximate="tanh")
        case _:
            return op.Gelu(x)
