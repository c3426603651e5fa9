"""Finishes a graph with the stages after the encoder and head, and writes it to a file."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from vecmill.graphs.batch_layout import Layout
from vecmill.graphs.ops import GraphOutput, Ops
from vecmill.graphs.stages import apply_stage, normalize
from vecmill.models.description import ModelDescription
from vecmill.models.heads import TokenHeads
from vecmill.models.weights import Weights
from vecmill.values.embeddings import Output, OutputShape
from vecmill.values.task import Task


def finish_graph(
    op: Ops, layout: Layout, description: ModelDescription, x: ir.Value, *, hidden: ir.Value | None = None
) -> ir.Model:
    """Finish a graph with the stages that graphs compute; `x` is the output of its encoder or head.

    `hidden` is the last hidden state, if `x` is not. An embedding model has the outputs of `Output`, in that
    order, with or without those of `TokenHeads`.
    """
    if description.output_shape is OutputShape.SPARSE:
        return finish_sparse(op, layout, description, [x])
    axis = "tokens" if description.output_shape is OutputShape.TOKEN else "texts"
    rows = GraphOutput(_apply_stages(op, layout, description, x), "rows", (axis, description.dim))
    if description.task is not Task.EMBED:
        return op.finish(rows)
    width, heads = description.encoder.output_size, description.token_heads
    states = GraphOutput(x if hidden is None else hidden, Output.HIDDEN_STATES, ("tokens", width))
    if heads is None:
        return op.finish(rows, states)
    return op.finish(rows, states, *_apply_token_heads(op, layout, heads, x, width))


def _apply_token_heads(
    op: Ops, layout: Layout, heads: TokenHeads, hidden: ir.Value, width: int
) -> tuple[GraphOutput, GraphOutput]:
    """Return the weights and the vectors of the tokens in `layout.head_tokens`.

    A batch that asks for neither has no such tokens, so that they cost nothing: ONNX Runtime computes all
    outputs of a graph, whichever are read.
    """
    assert layout.head_tokens is not None
    chosen = op.Gather(hidden, layout.head_tokens)
    logits = _apply_linear(op, heads.weights_file, "sparse_linear", chosen, (1, width))
    # Relu may turn NaN into 0, and a product with 0 keeps it.
    weights = op.Add(op.Relu(logits), op.Mul(logits, op.constant(0, np.float32)))
    vectors = normalize(op, _apply_linear(op, heads.vectors_file, "colbert_linear", chosen, (width, width)))
    return (
        GraphOutput(weights, Output.TOKEN_WEIGHTS, ("head_tokens", 1)),
        GraphOutput(vectors, Output.TOKEN_VECTORS, ("head_tokens", width)),
    )


def _apply_linear(op: Ops, file: Path, name: str, x: ir.Value, shape: tuple[int, int]) -> ir.Value:
    stored = Weights.open(file, asked_by={"hidden_size": shape[1]})
    weight, bias = (
        op.weight(replace(stored.tensor(part, size), name=f"{name}.{part}"))
        for part, size in (("weight", shape), ("bias", shape[:1]))
    )
    # Not Gemm, whose weights may be quantised: calibration batches ask for dense embeddings alone.
    return op.Add(op.MatMul(x, op.Transpose(weight, perm=[1, 0])), bias)


def finish_sparse(
    op: Ops, layout: Layout, description: ModelDescription, parts: Iterable[ir.Value]
) -> ir.Model:
    """Finish the graph of a sparse model from the logits of consecutive parts of its vocabulary.

    Logits of 32 texts of 512 tokens over 250,000 entries take 16 GB. Each part is pooled before the next is
    computed, so only the logits of one part are in memory at a time.
    """
    pooled = [
        _propagate_nan(op, layout, part, _apply_stages(op, layout, description, part)) for part in parts
    ]
    return op.finish(*_drop_zeros(op, op.Concat(*pooled, axis=1)))


def _apply_stages(op: Ops, layout: Layout, description: ModelDescription, x: ir.Value) -> ir.Value:
    for stage in description.graph_stages:
        x = apply_stage(op, layout, stage, x)
    return x


def _drop_zeros(op: Ops, weights: ir.Value) -> tuple[GraphOutput, ...]:
    """Return the outputs of a sparse model for `weights` (texts, width).

    `rows` (nonzeros,), float32, and `columns` (nonzeros,), int64, text by text, columns ascending; `counts`
    (texts,), int64, the number of nonzeros of each text.
    """
    # NaN is not equal to 0, so it is kept.
    kept = op.Not(op.Equal(weights, op.constant(0, np.float32)))
    places = op.NonZero(kept)
    return (
        GraphOutput(op.GatherND(weights, op.Transpose(places, perm=[1, 0])), "rows", ("nonzeros",)),
        GraphOutput(op.Gather(places, op.constant(1), axis=0), "columns", ("nonzeros",), is_integer=True),
        GraphOutput(
            op.ReduceSum(op.Cast(kept, to=ir.DataType.INT64), op.constant([1]), keepdims=0),
            "counts",
            ("texts",),
            is_integer=True,
        ),
    )


def _propagate_nan(op: Ops, layout: Layout, logits: ir.Value, weights: ir.Value) -> ir.Value:
    """Return `weights` (texts, width), with NaN for texts with `logits` (positions, n) that are not finite.

    A maximum may ignore NaN, depending on its position; the result must not look valid.
    """
    sums = op.Mul(op.ReduceSum(logits, op.constant([1]), keepdims=1), op.constant(0, np.float32))
    return op.Add(weights, op.ReduceSum(layout.by_text(sums), op.constant([1]), keepdims=0))


def drop_unused(model: ir.Model) -> ir.Model:
    """Remove unused nodes and inputs, on which some runtimes fail, from `model`, and return it."""
    RemoveUnusedNodesPass()(model)
    unread = [value for value in model.graph.inputs if not value.uses()]
    for value in unread:
        model.graph.inputs.remove(value)
    return model


def write_graph(model: ir.Model, path: Path) -> None:
    """Write the graph to `path` and its weights beside it, with one tensor in memory at a time."""
    ir.save(model, path, external_data=f"{path.name}.weights")
