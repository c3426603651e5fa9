"""Exact search: the best documents of each query, found by blocks of scores in bounded memory.

Order and ties are those of trec_eval: scores are compared in float32, and of equal scores the document with
the greater id comes first, in the order of the UTF-8 bytes. A score and the place of its document in that
order are joined in one integer, so that no two are equal and every run of a search has the same result.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from vecmill.values.aliases import IntArray

# Returns the scores (queries, documents) of some queries with some documents, which are slices of both.
ScoreBlock = Callable[[slice, slice], npt.NDArray[np.floating]]

# A block of scores: 16 MB, and twice as much for its keys.
BLOCK_QUERIES, BLOCK_DOCUMENTS = 512, 8_192

_NO_KEY = np.iinfo(np.int64).min
_LOW_BITS = np.int64(0xFFFF_FFFF)


class DocumentOrder:
    """The order of a corpus among equal scores.

    `places` (documents,) int64 is the place of each document, of which the highest comes first.
    """

    def __init__(self, ids: Sequence[str]) -> None:
        self.ids = ids
        # Python compares strings by code points, which is the order of their UTF-8 bytes.
        self._by_place = np.array(sorted(range(len(ids)), key=ids.__getitem__), np.int64)
        self.places = np.empty(len(ids), np.int64)
        self.places[self._by_place] = np.arange(len(ids))

    def __len__(self) -> int:
        return len(self.ids)

    def documents_at(self, places: IntArray) -> IntArray:
        """Return the numbers of the documents at these places."""
        return self._by_place[places]


class BestDocuments:
    """The best `depth` documents of each query among all that were added."""

    def __init__(self, order: DocumentOrder, queries: int, depth: int) -> None:
        self._order = order
        self._keys = np.full((queries, min(depth, len(order))), _NO_KEY, np.int64)

    def add(
        self, queries: slice, first: int, scores: npt.NDArray[np.floating], without: IntArray | None = None
    ) -> None:
        """Add the scores (queries, documents) of `queries` with the documents from number `first` on.

        `without` (queries,) is the number of a document that each of the queries must not find, or -1.
        """
        count = scores.shape[1]
        keys = _join(scores, self._order.places[first : first + count])
        if without is not None:
            rows = np.flatnonzero((without >= first) & (without < first + count))
            keys[rows, without[rows] - first] = _NO_KEY
        depth = self._keys.shape[1]
        both = np.concatenate([self._keys[queries], keys], axis=1)
        self._keys[queries] = np.partition(both, both.shape[1] - depth, axis=1)[:, -depth:]

    def rank(self) -> list[IntArray]:
        """Return the numbers of the documents of each query, the best first."""
        ordered = np.sort(self._keys, axis=1)[:, ::-1]
        return [self._order.documents_at(keys[keys != _NO_KEY] & _LOW_BITS) for keys in ordered]


def find_best(
    score: ScoreBlock, order: DocumentOrder, queries: int, depth: int, without: IntArray | None = None
) -> list[IntArray]:
    """Return the numbers of the best `depth` documents of each query, the best first.

    For `without` see `BestDocuments.add`; it has a number for each query.
    """
    best = BestDocuments(order, queries, depth)
    for documents in slices_of(len(order), BLOCK_DOCUMENTS):
        for some in slices_of(queries, BLOCK_QUERIES):
            hidden = None if without is None else without[some]
            best.add(some, documents.start, score(some, documents), hidden)
    return best.rank()


def slices_of(count: int, size: int) -> Iterator[slice]:
    """Return slices of at most `size` that cover `count` things."""
    return (slice(at, min(at + size, count)) for at in range(0, count, size))


def rank_documents(order: DocumentOrder, documents: IntArray, scores: npt.NDArray[np.floating]) -> IntArray:
    """Return some documents, by number, ordered by their scores (documents,)."""
    keys = _join(scores[None], order.places[documents])[0]
    return documents[np.argsort(keys)[::-1]]


def _join(scores: npt.NDArray[np.floating], places: IntArray) -> npt.NDArray[np.int64]:
    """Return int64 keys (queries, documents) in the order of scores, and of places where these are equal."""
    # 0 and -0 are equal, and differ in their bits.
    bits = (scores.astype(np.float32, copy=False) + np.float32(0)).view(np.int32).astype(np.int64)
    # As an integer, a negative float has the opposite order.
    ordered = bits ^ ((bits >> 31) & 0x7FFF_FFFF)
    keys: npt.NDArray[np.int64] = (ordered << 32) | places
    return keys
