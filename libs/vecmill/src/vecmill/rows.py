"""What is done to finished rows: stack, cut, renormalise."""

from collections.abc import Sequence

import numpy as np

from vecmill.types import FloatArray, Row, SparseRow


def dense(row: Row) -> FloatArray:
    """The values of a row that is not sparse."""
    assert isinstance(row, np.ndarray), "a sparse row"
    return row


def sparse(row: Row) -> SparseRow:
    """A row that is sparse."""
    assert isinstance(row, SparseRow), "a row with its zeros"
    return row


def stack_rows(rows: Sequence[Row]) -> FloatArray:
    """Join the (1, dim) rows of several texts to (texts, dim), float32, C-contiguous."""
    return np.concatenate([dense(row) for row in rows])


def normalize_rows(rows: FloatArray) -> FloatArray:
    """Scale each row of (n, dim) to length 1; a row of zeros stays as it is."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    normalized: FloatArray = np.divide(rows, np.maximum(norms, np.float32(1e-12)), dtype=np.float32)
    return normalized


def cut_rows(rows: FloatArray, dimensions: int, *, normalize: bool) -> FloatArray:
    """Keep the first `dimensions` columns of (n, dim), C-contiguous; renormalise if asked.

    This is what Matryoshka models are trained for (Kusupati et al. 2022, arXiv:2205.13147).
    """
    cut = np.ascontiguousarray(rows[:, :dimensions])
    return normalize_rows(cut) if normalize else cut
