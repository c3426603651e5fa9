"""Adds the stages between the encoder's last hidden state and the outputs.

The rules are those of sentence-transformers 6.2 (`base/modules/dense.py`, `base/modules/normalize.py`,
`sentence_transformer/modules/layer_norm.py`, `sparse_encoder/modules/splade_pooling.py`).
"""

import dataclasses
from pathlib import Path

import numpy as np
import onnx_ir as ir

from vecmill.graphs.activations import activate
from vecmill.graphs.batch_layout import Layout
from vecmill.graphs.ops import Ops
from vecmill.graphs.pooling import normalize, pool
from vecmill.models.stages import (
    Dense,
    DenseActivation,
    LayerNorm,
    Normalize,
    Pooling,
    Splade,
    Stage,
    Truncate,
)
from vecmill.models.weights import Weights

_TORCH_EPSILON = 1e-5  # of `torch.nn.LayerNorm`


def apply_stage(op: Ops, layout: Layout, stage: Stage, x: ir.Value) -> ir.Value:
    """Add one stage to `x`: (positions, width) before pooling, (texts, width) after it.

    Raises `CorruptModel` if a stage's weights are broken or do not fit its settings.
    """
    match stage:
        case Pooling():
            return pool(op, layout, x, stage)
        case Dense():
            return _apply_dense(op, stage, x)
        case LayerNorm():
            return _apply_layer_norm(op, stage, x)
        case Normalize():
            return normalize(op, x)
        case Splade():
            return _pool_logits(op, layout, stage, x)
        case Truncate():
            return op.Slice(x, op.constant([0]), op.constant([stage.width]), op.constant([1]))


def _weight(op: Ops, file: Path, name: str, *shape: int) -> ir.Value:
    keys = dict(zip(("out_features or dim", "in_features or dimension"), shape, strict=False))
    tensor = Weights.open(file, asked_by=keys).tensor(name, shape)
    # Stages of a kind have the same tensor names, so the folder makes them unique.
    return op.weight(dataclasses.replace(tensor, name=f"{file.parent.name}.{name}"))


def _apply_dense(op: Ops, dense: Dense, x: ir.Value) -> ir.Value:
    shape = (dense.outputs, dense.inputs)
    bias = _weight(op, dense.file, "linear.bias", dense.outputs) if dense.bias else None
    product = op.Gemm(x, _weight(op, dense.file, "linear.weight", *shape), bias, transB=1)
    is_linear = dense.activation is DenseActivation.IDENTITY
    out = activate(op, product, "linear" if is_linear else dense.activation.lower())
    if not dense.residual:
        return out
    if dense.inputs != dense.outputs:
        x = op.Gemm(x, _weight(op, dense.file, "residual.weight", *shape), None, transB=1)
    return op.Add(out, x)


def _apply_layer_norm(op: Ops, norm: LayerNorm, x: ir.Value) -> ir.Value:
    scale, shift = (_weight(op, norm.file, f"norm.{part}", norm.width) for part in ("weight", "bias"))
    return op.LayerNormalization(x, scale, shift, axis=-1, epsilon=_TORCH_EPSILON)


def _pool_logits(op: Ops, layout: Layout, splade: Splade, logits: ir.Value) -> ir.Value:
    if not splade.add_up:
        # `_saturate` is monotonic, and an empty slot repeats a token of its text, so neither changes the
        # maximum.
        return _saturate(op, splade, op.ReduceMax(layout.by_text(logits), op.constant([1]), keepdims=0))
    counted = op.Unsqueeze(op.Cast(layout.is_token, to=ir.DataType.FLOAT), op.constant([1]))
    sums = op.MatMul(counted, layout.by_text(_saturate(op, splade, logits)))
    return op.Squeeze(sums, op.constant([1]))


def _saturate(op: Ops, splade: Splade, logits: ir.Value) -> ir.Value:
    one = op.constant(1, np.float32)
    weights = op.Log(op.Add(op.Relu(logits), one))
    return op.Log(op.Add(weights, one)) if splade.twice else weights
