"""The comparison of stored vectors with vectors of the same texts that were embedded again. Pure.

Vectors of one space point in nearly the same direction for the same text, whatever engine and precision
computed them. Those of two spaces have cosines around zero, even if they have as many dimensions. Lengths are
compared too, but decide nothing: a file may hold the same vectors normalised.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from vecmill.bulk.embedder import Vectors
from vecmill.values.embeddings import OutputDtype

# Vectors to compute with, (texts, dimensions).
Numbers = npt.NDArray[np.float64]

# The least cosine of the same text that is put down to precision: the loss that 8-bit precisions may have
# (`verification.precision_gate`), and what quantised vectors lose beside.
LEAST_COSINES: Mapping[OutputDtype, float] = MappingProxyType(
    {
        OutputDtype.FLOAT: 0.99,
        OutputDtype.INT8: 0.97,
        OutputDtype.UINT8: 0.97,
        OutputDtype.BINARY: 0.8,
        OutputDtype.UBINARY: 0.8,
    }
)
# The largest difference of a value, relative to the largest value, that another batch makes in fp32.
SAME_VALUES = 2e-6
# The share of texts that must fit so that the others have other texts, and not the file another space.
MOST = 0.5
# Median lengths that differ by more than this share are named.
_LENGTHS_DIFFER = 0.01


class Verdict(StrEnum):
    """What stored vectors are. The values are those of the JSON output."""

    SAME_VALUES = "same values"
    SAME_SPACE = "same space"
    OTHER_PROMPT = "other prompt"
    OTHER_TEXTS = "other texts"
    OTHER_SPACE = "other space"
    OTHER_NAME = "other name"  # the vectors are the same, but the file names another space


@dataclass(frozen=True, slots=True)
class VectorComparison:
    """The comparison of some stored vectors with new ones.

    `cosines` (texts,) are those of the two vectors of each text, 0 for a vector of zeros. `is_equal` tells
    whether the numbers are the same but for the rounding of fp32. `lengths` are the median lengths of the
    stored and of the new vectors. `centroid_cosine` is that of the means of both: near 1 for vectors of one
    space, whichever texts they have.
    """

    kind: OutputDtype
    cosines: Numbers
    is_equal: bool
    lengths: tuple[float, float]
    centroid_cosine: float

    @property
    def median(self) -> float:
        """The median cosine."""
        return float(np.median(self.cosines))

    @property
    def fits(self) -> npt.NDArray[np.bool_]:
        """Whether the two vectors of each text are the same but for the precision, (texts,)."""
        return self.cosines >= LEAST_COSINES[self.kind]

    @property
    def share(self) -> float:
        """The share of texts that fit."""
        return float(self.fits.mean())

    @property
    def verdict(self) -> Verdict:
        """The verdict, unless another prompt fits better."""
        if self.is_equal:
            return Verdict.SAME_VALUES
        if self.fits.all():
            return Verdict.SAME_SPACE
        return Verdict.OTHER_TEXTS if self.share >= MOST else Verdict.OTHER_SPACE

    @property
    def is_scaled(self) -> bool:
        """Whether the stored vectors are longer or shorter than the new ones."""
        stored, new = self.lengths
        return abs(stored - new) > _LENGTHS_DIFFER * max(stored, new)


def compare_vectors(stored: Vectors, new: Vectors, kind: OutputDtype) -> VectorComparison:
    """Compare vectors, (texts, numbers), with new ones of the same texts and type."""
    one, other = to_directions(stored, kind), to_directions(new, kind)
    scale = max(1.0, float(np.abs(other).max(initial=0.0)))
    return VectorComparison(
        kind,
        _cosines(one, other),
        bool(np.abs(one - other).max(initial=0.0) <= SAME_VALUES * scale),
        (_median_length(one), _median_length(other)),
        float(_cosines(one.mean(axis=0, keepdims=True), other.mean(axis=0, keepdims=True))[0]),
    )


def to_directions(vectors: Vectors, kind: OutputDtype) -> Numbers:
    """Return vectors of any type as numbers around zero: bits as 1 and -1, 8-bit numbers by their middle."""
    if kind in (OutputDtype.BINARY, OutputDtype.UBINARY):
        packed = vectors if kind is OutputDtype.UBINARY else vectors.astype(np.int16) + 128
        return np.unpackbits(packed.astype(np.uint8), axis=1).astype(np.float64) * 2 - 1
    middle = {OutputDtype.INT8: -0.5, OutputDtype.UINT8: 127.5}.get(kind, 0.0)
    numbers: Numbers = vectors.astype(np.float64) - middle
    return numbers


def find_kind(vectors: Vectors, named: object, dim: int) -> OutputDtype:
    """Return the type of stored vectors: the one `named` beside them, else that of their numbers.

    As many 8-bit numbers as `dim`, the dimensions of the model, are one for each; fewer hold eight bits.
    """
    is_float = vectors.dtype.kind == "f"
    for kind in OutputDtype:
        if named == kind and is_float == (kind is OutputDtype.FLOAT):
            return kind
    if is_float:
        return OutputDtype.FLOAT
    is_signed, is_packed = vectors.dtype.kind == "i", vectors.shape[1] * 8 <= dim
    if is_packed:
        return OutputDtype.BINARY if is_signed else OutputDtype.UBINARY
    return OutputDtype.INT8 if is_signed else OutputDtype.UINT8


def _cosines(one: Numbers, other: Numbers) -> Numbers:
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    products = np.einsum("ij,ij->i", one, other)
    found: Numbers = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
    return found


def _median_length(vectors: Numbers) -> float:
    return float(np.median(np.linalg.norm(vectors, axis=1)))
