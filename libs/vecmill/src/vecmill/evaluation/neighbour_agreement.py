"""How far two sets of vectors of the same texts agree: nearest neighbours, and the order of all texts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vecmill.evaluation.document_scores import score_dense
from vecmill.evaluation.exact_search import BLOCK_QUERIES, DocumentOrder, find_best, slices_of
from vecmill.models.heads import Similarity
from vecmill.values.aliases import FloatArray, IntArray

# The texts whose order of all other texts is compared.
RANKED_TEXTS = 1_000


def order_of_numbers(count: int) -> DocumentOrder:
    """Return an order in which equal scores are ordered by the numbers of the texts."""
    return DocumentOrder([f"{number:012}" for number in range(count)])


@dataclass(frozen=True, slots=True)
class ComparedVectors:
    """The vectors (texts, dim) of all texts, and how they are compared."""

    vectors: FloatArray
    similarity: Similarity

    def score(self, some: slice | IntArray, block: slice) -> FloatArray:
        """Return the scores of some texts with a block of others."""
        return score_dense(self.vectors[some], self.vectors[block], self.similarity)


def find_overlaps(
    first: ComparedVectors, second: ComparedVectors, depths: Sequence[int]
) -> dict[int, npt.NDArray[np.float64]]:
    """Return the share of nearest neighbours (texts,) that both spaces have, for each of `depths`."""
    count = len(first.vectors)
    order, itself = order_of_numbers(count), np.arange(count)
    near = [find_best(space.score, order, count, max(depths), itself) for space in (first, second)]
    return {
        depth: np.array(
            [
                len(np.intersect1d(ours[:depth], theirs[:depth], assume_unique=True)) / depth
                for ours, theirs in zip(*near, strict=True)
            ]
        )
        for depth in depths
    }


def correlate_ranks(
    first: ComparedVectors, second: ComparedVectors, *, seed: int = 0, most: int = RANKED_TEXTS
) -> npt.NDArray[np.float64]:
    """Return Spearman's correlation of the scores of a text with all others, for at most `most` texts."""
    count = len(first.vectors)
    chosen = np.sort(np.random.default_rng(seed).permutation(count)[:most])
    found = []
    for some in slices_of(len(chosen), BLOCK_QUERIES // 8):
        numbers = chosen[some]
        both = [space.score(numbers, slice(0, count)) for space in (first, second)]
        for at, number in enumerate(numbers):
            ours, theirs = (rank_values(np.delete(scores[at], number)) for scores in both)
            found.append(_correlate(ours, theirs))
    return np.array(found)


def rank_values(values: FloatArray) -> npt.NDArray[np.float64]:
    """Return the rank of each of `values` (n,), from 1; equal ones share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    lasts = np.cumsum(counts)
    means: npt.NDArray[np.float64] = (lasts - (counts - 1) / 2)[inverse]
    return means


def _correlate(ours: npt.NDArray[np.float64], theirs: npt.NDArray[np.float64]) -> float:
    """Return Pearson's correlation, 0 if all values of one side are equal."""
    left, right = ours - ours.mean(), theirs - theirs.mean()
    scale = float(np.sqrt(np.square(left).sum() * np.square(right).sum()))
    return float(left @ right) / scale if scale else 0.0
