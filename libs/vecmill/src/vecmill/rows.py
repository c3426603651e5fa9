"""What is done to finished rows: stack, cut, renormalise, write in fewer bits."""

from collections.abc import Sequence
from enum import StrEnum
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

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


class RowKind(StrEnum):
    """How the numbers of a row are written."""

    FLOAT = "float"  # 32 bits a number
    INT8 = "int8"  # 8 bits: 256 steps between the least and the greatest value of each column, from -128
    UINT8 = "uint8"  # the same from 0
    UBINARY = "ubinary"  # 1 bit: whether it is above 0; eight to a byte, the first highest
    BINARY = "binary"  # the same bytes, minus 128

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """What holds one number, or eight of 1 bit; little-endian."""
        return np.dtype(_DTYPES[self])

    @property
    def needs_ranges(self) -> bool:
        """Whether rows of this kind depend on what each column's values are like."""
        return self in (RowKind.INT8, RowKind.UINT8)

    @property
    def needs_bytes(self) -> bool:
        """Whether the numbers of a row must fill whole bytes."""
        return self in (RowKind.BINARY, RowKind.UBINARY)


_DTYPES = MappingProxyType(
    {
        RowKind.FLOAT: "<f4",
        RowKind.INT8: "i1",
        RowKind.UINT8: "u1",
        RowKind.UBINARY: "u1",
        RowKind.BINARY: "i1",
    }
)


def find_ranges(rows: FloatArray) -> FloatArray:
    """The least and the greatest value of each column of (n, dim): (2, dim)."""
    ranges: FloatArray = np.stack([rows.min(axis=0), rows.max(axis=0)])
    return ranges


def quantize_rows(
    rows: FloatArray, kind: RowKind, ranges: FloatArray | None = None
) -> npt.NDArray[np.generic]:
    """(n, dim) float32 as `kind`: (n, dim), or (n, dim / 8) of bits.

    `ranges` (2, dim) are needed where the kind says so; what is outside of them is written as the nearest
    step. Numbers that do not fill a byte are padded with zeros. Source: sentence-transformers 6.2
    (`quantize_embeddings`), whose packing is Cohere's too.
    """
    if kind is RowKind.FLOAT:
        return rows
    if kind.needs_bytes:
        packed = np.packbits(rows > 0, axis=-1)
        return packed if kind is RowKind.UBINARY else (packed.astype(np.int16) - 128).astype(np.int8)
    assert ranges is not None, "8 bits need ranges"
    low, high = ranges
    steps = (high - low) / 255
    steps[steps == 0] = 1
    numbers: FloatArray = np.clip(np.floor((rows - low) / steps), 0, 255)
    return numbers.astype(np.uint8) if kind is RowKind.UINT8 else (numbers - 128).astype(np.int8)
