"""Adds an activation to a graph by its name in transformers."""

import numpy as np
import onnx_ir as ir

from vecmill.graphs.ops import Ops


def activate(op: Ops, x: ir.Value, name: str) -> ir.Value:
    """Apply the activation `name`, one of `models.config_fields.ACTIVATIONS`."""
    match name:
        case "linear":
            return x
        case "relu":
            return op.Relu(x)
        case "sigmoid":
            return op.Sigmoid(x)
        case "tanh":
            return op.Tanh(x)
        case "silu" | "swish":
            return op.Mul(x, op.Sigmoid(x))
        case "quick_gelu":
            return op.Mul(x, op.Sigmoid(op.Mul(x, op.constant(1.702, np.float32))))
        case "gelu_fast" | "gelu_new" | "gelu_python_tanh" | "gelu_pytorch_tanh":
            return op.Gelu(x, approximate="tanh")
        case _:
            return op.Gelu(x)
