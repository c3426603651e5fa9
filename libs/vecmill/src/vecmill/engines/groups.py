"""Calls that compute the texts of a batch in groups, and restore the order of the texts.

Graphs with attention in blocks (`graphs.softmax_attention`) require that a long text is alone in its call. A
long text fills the cores by itself, so separate calls lose no time. Its embedding is the same in any batch.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vecmill.engines.buckets import select_texts
from vecmill.models.long_texts import LONG_TEXT_TOKENS
from vecmill.values.aliases import IntArray
from vecmill.values.batch import Batch
from vecmill.values.embeddings import OutputShape

Outputs = list[Any]


def is_long(batch: Batch) -> bool:
    """Return whether a text of `batch` is long."""
    return int(batch.lengths.max()) > LONG_TEXT_TOKENS


def group_long_texts(batch: Batch) -> list[IntArray]:
    """Return the indices of the texts of each call: all texts that are not long, and each long text alone."""
    long = batch.lengths > LONG_TEXT_TOKENS
    short = np.flatnonzero(~long)
    return [*([short] if len(short) else []), *np.flatnonzero(long)[:, None]]


def compute_groups(
    compute: Callable[[Batch], Outputs], batch: Batch, groups: Sequence[IntArray], usual: OutputShape
) -> Outputs:
    """Return the outputs of `batch` in the order of its texts, with one call of `compute` for each group.

    `usual` is the shape of the usual output.
    """
    if len(groups) == 1:
        return compute(batch)
    outputs = [compute(select_texts(batch, group.tolist())) for group in groups]
    shapes = batch.output_shapes(usual)
    if OutputShape.SPARSE in shapes:
        return _restore_order(outputs, groups, batch, OutputShape.SPARSE)
    return [
        _restore_order([[found[place]] for found in outputs], groups, batch, shape)[0]
        for place, shape in enumerate(shapes)
    ]


def _restore_order(
    outputs: Sequence[Outputs], groups: Sequence[IntArray], batch: Batch, output_shape: OutputShape
) -> Outputs:
    """Join one output of groups of texts, in the order of the texts in `batch`."""
    order = np.argsort(np.concatenate(groups), kind="stable")
    if output_shape is OutputShape.TEXT:
        return [np.concatenate([found[0] for found in outputs])[order]]
    counts = [
        found[2] if output_shape is OutputShape.SPARSE else batch.row_counts(output_shape)[group]
        for found, group in zip(outputs, groups, strict=True)
    ]
    ends = np.cumsum(np.concatenate(counts))[:-1]
    columns = 2 if output_shape is OutputShape.SPARSE else 1
    parts = [np.split(np.concatenate([found[place] for found in outputs]), ends) for place in range(columns)]
    restored = [np.concatenate([part[index] for index in order]) for part in parts]
    return [*restored, np.concatenate(counts)[order]] if output_shape is OutputShape.SPARSE else restored


def count_padded(batch: Batch, groups: Sequence[IntArray]) -> int:
    """Return the number of tokens that attention computes for the calls of `groups`, padding included."""
    return sum(len(group) * int(batch.lengths[group].max()) for group in groups)
