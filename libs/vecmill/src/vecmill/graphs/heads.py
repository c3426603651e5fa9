"""From the encoder's last hidden state to the logits of a task model, and to rows without their zeros."""

from typing import TypeVar

import numpy as np
import onnx_ir as ir

from vecmill.graphs.family import Family
from vecmill.graphs.layout import Layout
from vecmill.graphs.ops import Ops, Output
from vecmill.models.encoder import EncoderConfig
from vecmill.models.heads import Head, HeadKind

Config = TypeVar("Config", bound=EncoderConfig)


def apply_head(op: Ops, layout: Layout, family: Family[Config], head: Head, hidden: ir.Value) -> ir.Value:
    """Add a head to `hidden` (positions, hidden_size). Returns its logits, float32:

    (texts, labels) of a sequence, (positions, labels) of tokens, (positions, vocab_size) over the
    vocabulary, (texts, 1) of yes or no; `hidden` itself where the stages after it give logits. Raises
    `UnsupportedModel` if the family has no such head.
    """
    match head.kind:
        case HeadKind.SEQUENCE:
            return family.classify(hidden, len(head.labels))
        case HeadKind.TOKENS:
            return family.classify_tokens(hidden, len(head.labels))
        case HeadKind.VOCABULARY:
            return family.predict_tokens(hidden)
        case HeadKind.STAGES:
            return hidden
        case HeadKind.YES_NO:
            return _judge(op, layout, family, head, hidden)


def _judge(op: Ops, layout: Layout, family: Family[Config], head: Head, hidden: ir.Value) -> ir.Value:
    """The logit of "yes" after a text's last token, less that of "no" where there is one: (texts, 1)."""
    last = op.Sub(layout.lengths, op.constant([1]))
    logits = family.predict_chosen(layout.token_at(hidden, last), head.token_ids)
    yes, *rest = (op.slice(logits, place, place + 1, axis=1) for place in range(len(head.token_ids)))
    return op.Sub(yes, rest[0]) if rest else yes


def drop_zeros(op: Ops, rows: ir.Value) -> tuple[Output, ...]:
    """What a sparse model gives for `rows` (texts, width).

    `rows` (nonzeros,) float32 and `columns` (nonzeros,) int64, text by text and ascending, and `counts`
    (texts,) int64, the nonzeros of each text.
    """
    # NaN is not equal to 0, so it stays, and is seen.
    kept = op.Not(op.Equal(rows, op.constant(0, np.float32)))
    places = op.NonZero(kept)
    return (
        Output(op.GatherND(rows, op.Transpose(places, perm=[1, 0])), "rows", ("nonzeros",)),
        Output(op.Gather(places, op.constant(1), axis=0), "columns", ("nonzeros",), is_integer=True),
        Output(
            op.ReduceSum(op.Cast(kept, to=ir.DataType.INT64), op.constant([1]), keepdims=0),
            "counts",
            ("texts",),
            is_integer=True,
        ),
    )


def carry_nan(op: Ops, layout: Layout, logits: ir.Value, rows: ir.Value) -> ir.Value:
    """`rows` (texts, width), with NaN in those of texts whose `logits` (positions, n) are not all finite.

    A maximum may drop NaN, depending on where it stands; what comes of it must not look like a row.
    """
    sums = op.Mul(op.ReduceSum(logits, op.constant([1]), keepdims=1), op.constant(0, np.float32))
    return op.Add(rows, op.ReduceSum(layout.by_text(sums), op.constant([1]), keepdims=0))
