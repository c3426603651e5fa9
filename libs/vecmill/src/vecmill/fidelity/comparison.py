"""Comparing rows with reference rows: differences, cosines, and the neighbours that are kept."""

from dataclasses import dataclass

import numpy as np

from vecmill.rows import normalize_rows
from vecmill.types import FloatArray

NEIGHBOURS = 10


@dataclass(frozen=True, slots=True)
class Comparison:
    """How rows differ from their reference, over `texts` texts.

    `largest_difference` is over all components; `cosine_min` is that of the worst text, number
    `worst_text`. `neighbours_kept` is the share of each text's nearest texts by the reference that
    are among its nearest by the rows, `None` where there are too few texts to tell.
    """

    texts: int
    largest_difference: float
    cosine_min: float
    cosine_mean: float
    worst_text: int
    neighbours_kept: float | None


def compare_rows(rows: FloatArray, reference: FloatArray) -> Comparison:
    """Compare (texts, dim) with (texts, dim). Rows that are not finite count as infinitely far off."""
    if rows.shape != reference.shape:
        raise ValueError(f"rows have shape {rows.shape}, the reference has {reference.shape}")
    differences = np.nan_to_num(np.abs(rows - reference), nan=np.inf)
    ours, theirs = normalize_rows(np.nan_to_num(rows)), normalize_rows(reference)
    cosines = np.asarray((ours * theirs).sum(axis=1, dtype=np.float64))
    # Two rows of zeros agree, whatever their cosine says.
    cosines[~rows.any(axis=1) & ~reference.any(axis=1)] = 1.0
    return Comparison(
        texts=len(rows),
        largest_difference=float(differences.max()),
        cosine_min=float(cosines.min()),
        cosine_mean=float(cosines.mean()),
        worst_text=int(cosines.argmin()),
        neighbours_kept=_neighbours_kept(ours, theirs) if len(rows) > 2 * NEIGHBOURS else None,
    )


def _neighbours_kept(ours: FloatArray, theirs: FloatArray) -> float:
    kept = [len(a & b) for a, b in zip(_nearest(ours), _nearest(theirs), strict=True)]
    return float(np.mean(kept)) / NEIGHBOURS


def _nearest(rows: FloatArray) -> list[set[int]]:
    """The nearest other texts of each text, by cosine. `rows` have unit length."""
    cosines = rows @ rows.T
    np.fill_diagonal(cosines, -np.inf)
    return [set(found.tolist()) for found in np.argpartition(-cosines, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]]
