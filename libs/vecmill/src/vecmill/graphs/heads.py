"""Adds the head of a task model to a graph, and the conversion of sparse weights to nonzeros."""

from typing import TypeVar

import numpy as np
import onnx_ir as ir

from vecmill.graphs.batch_layout import Layout
from vecmill.graphs.encoder import EncoderGraph
from vecmill.graphs.ops import GraphOutput, Ops
from vecmill.models.encoder_config import EncoderConfig
from vecmill.models.heads import Head, HeadKind

Config = TypeVar("Config", bound=EncoderConfig)


def apply_head(
    op: Ops, layout: Layout, encoder: EncoderGraph[Config], head: Head, hidden: ir.Value
) -> ir.Value:
    """Add a head to `hidden` (positions, hidden_size). Return its logits, float32.

    `SEQUENCE`: (texts, labels). `TOKENS`: (positions, labels). `VOCABULARY`: (positions, vocab_size).
    `YES_NO`: (texts, 1). `STAGES`: `hidden`, because the stages compute the logits. Raises `UnsupportedModel`
    if the architecture has no such head.
    """
    match head.kind:
        case HeadKind.SEQUENCE:
            return encoder.classify(hidden, len(head.labels))
        case HeadKind.TOKENS:
            return encoder.classify_tokens(hidden, len(head.labels))
        case HeadKind.VOCABULARY:
            return encoder.predict_tokens(hidden)
        case HeadKind.STAGES:
            return hidden
        case HeadKind.YES_NO:
            return _yes_no_logit(op, layout, encoder, head, hidden)


def _yes_no_logit(
    op: Ops, layout: Layout, encoder: EncoderGraph[Config], head: Head, hidden: ir.Value
) -> ir.Value:
    """Return the logit of "yes" after the last token, minus that of "no" if there is one: (texts, 1)."""
    last = op.Sub(layout.lengths, op.constant([1]))
    logits = encoder.predict_chosen(layout.token_at(hidden, last), head.token_ids)
    yes, *rest = (op.slice(logits, index, index + 1, axis=1) for index in range(len(head.token_ids)))
    return op.Sub(yes, rest[0]) if rest else yes


def drop_zeros(op: Ops, weights: ir.Value) -> tuple[GraphOutput, ...]:
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


def propagate_nan(op: Ops, layout: Layout, logits: ir.Value, weights: ir.Value) -> ir.Value:
    """Return `weights` (texts, width), with NaN for texts with `logits` (positions, n) that are not finite.

    A maximum may ignore NaN, depending on its position; the result must not look valid.
    """
    sums = op.Mul(op.ReduceSum(logits, op.constant([1]), keepdims=1), op.constant(0, np.float32))
    return op.Add(weights, op.ReduceSum(layout.by_text(sums), op.constant([1]), keepdims=0))
