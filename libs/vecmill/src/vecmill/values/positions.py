"""Computation of the token positions of a batch, which graphs with an `IndexedLayout` take as input arrays.

A runtime that compiles for each new shape should see few shapes. So the numbers of positions, slots and texts
can be rounded up. The padding is cheap and harmless. Padding tokens have id 0 and position 0, and each
padding text consists of the first token of the batch. No real text refers to padding.

In a causal model the hidden state of a token depends on the tokens before it alone. So texts that begin with
the same tokens, such as the documents of one query or texts with the same instruction, share the positions
of these tokens:

    texts       a b c d     a b e     a f          9 tokens
    positions   0 1 2 3     0 1 4     0 5          6 positions

Embeddings, linear layers and norms, most of the work, compute each position once. The texts of a batch form a
trie, whose nodes are the positions.

Attention has a query for each position too. The queries of a text are those that it does not share with the
texts before it. They are divided into rows of `width` queries, so that a first text, which shares nothing,
does not set the width of all others. A row attends to the keys of its text as a whole:

    rows, width = 2     a b     c d     e     f
    texts of the rows   0       0       1     2

Source: "RadixMLP: Intra-batch Deduplication for Causal Transformers", arXiv 2601.15013.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass
from itertools import pairwise

import numpy as np

from vecmill.values.aliases import IntArray
from vecmill.values.batch import Batch
from vecmill.values.embeddings import Output

# To read the keys of a row takes about as long as to compute so many queries more.
_ROW_QUERIES = 32
# The longest queries of a text may be divided into so many rows of equal width.
_PARTS = np.arange(1, 17)


@dataclass(frozen=True, slots=True)
class Positions:
    """The positions of the tokens of a batch in a graph.

    `of_tokens` (tokens,) is the position of each token, `tokens` (positions,) a token at each position.
    `shared` (texts,) is the number of leading tokens of each text that have their queries in another text.
    All are int64. Attention has rows of `width` queries.
    """

    of_tokens: IntArray
    tokens: IntArray
    shared: IntArray
    width: int

    @classmethod
    def of(cls, batch: Batch, *, shares_prefixes: bool) -> "Positions":
        """Return the positions of `batch`; with `shares_prefixes` equal prefixes of texts share theirs.

        Only for the usual output: other outputs may have a row for each position.
        """
        every = np.arange(len(batch.token_ids))
        nothing = np.zeros(len(batch), np.int64)
        if not shares_prefixes or len(batch) == 1:
            return cls(every, every, nothing, int(batch.lengths.max()))
        if batch.outputs != (Output.USUAL,):
            return cls(every, every, nothing, _choose_width(batch.lengths))
        return _share_prefixes(batch)

    def __len__(self) -> int:
        return len(self.tokens)

    def count_rows(self, batch: Batch) -> IntArray:
        """Return the number of rows of each text of `batch`, (texts,) int64."""
        return -(-(batch.lengths - self.shared) // self.width)


def _share_prefixes(batch: Batch) -> Positions:
    """Return positions in the order of the sorted texts, where equal prefixes are next to each other."""
    bounds, ids = batch.offsets.tolist(), batch.token_ids
    # Big-endian bytes of numbers that are not negative sort as the numbers do.
    content = ids.astype(">i8").tobytes()
    keys = [content[8 * start : 8 * end] for start, end in pairwise(bounds)]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    shared = np.zeros(len(keys), np.int64)
    for before, index in pairwise(order):
        start, end = bounds[index], bounds[index + 1]
        other = bounds[before]
        length = min(end - start, bounds[before + 1] - other)
        shared[index] = _count_equal(ids[other : other + length], ids[start : start + length])
    # Equal texts, which only checks at a start have, may be more than their positions. The last layer may
    # have a row for each text, and the rotation of runtimes refuses more rows than there are positions.
    if not shared.any() or len(ids) - int(shared.sum()) < len(keys):
        every = np.arange(len(ids))
        return Positions(every, every, np.zeros_like(shared), _choose_width(batch.lengths))
    of_tokens = np.empty(len(ids), np.int64)
    tokens = []
    count, its_positions = 0, of_tokens[:0]
    for index, common in zip(order, shared[order].tolist(), strict=True):
        start, end = bounds[index], bounds[index + 1]
        own = end - start - common
        positions = of_tokens[start:end]
        positions[:common] = its_positions[:common]
        positions[common:] = np.arange(count, count + own)
        tokens.append(np.arange(start + common, end))
        count, its_positions = count + own, positions
    return Positions(of_tokens, np.concatenate(tokens), shared, _choose_width(batch.lengths - shared))


def _count_equal(one: IntArray, other: IntArray) -> int:
    """Return the number of leading tokens that are the same in both, which have the same length."""
    differs = one != other
    first = int(differs.argmax())
    return first if differs[first] else len(one)


def _choose_width(queries: IntArray) -> int:
    """Return the width of rows that takes the least time for texts with so many `queries`, (texts,) int64."""
    lengths, texts = np.unique(queries[queries > 0], return_counts=True)
    if len(lengths) == 1:
        return int(lengths[0])
    widths = np.union1d(lengths, -(-lengths[-1] // _PARTS))
    rows = -(-lengths // widths[:, None]) @ texts
    return int(widths[np.argmin(rows * (widths + _ROW_QUERIES))])


@dataclass(frozen=True, slots=True)
class BatchShape:
    """The sizes of a call.

    Token `positions`, `texts`, `longest`, the number of slots of each text, `rows` of attention of `width`
    queries, and `heads`, the number of positions that the heads compute.
    """

    positions: int
    texts: int
    longest: int
    rows: int
    width: int
    heads: int = 0

    @classmethod
    def of(cls, batch: Batch, positions: Positions) -> "BatchShape":
        """Return the smallest shape that holds `batch`."""
        return cls(
            len(positions),
            len(batch),
            int(batch.lengths.max()),
            int(positions.count_rows(batch).sum()),
            positions.width,
            len(batch.head_tokens),
        )

    def rounded(self, *, positions: int = 1, texts: int = 1, longest: int = 1) -> "BatchShape":
        """Return this shape with each size rounded up to a multiple of the given number."""
        return BatchShape(
            _round_up(self.positions, positions),
            _round_up(self.texts, texts),
            _round_up(self.longest, longest),
            _round_up(self.rows, texts),
            _round_up(self.width, longest),
            _round_up(self.heads, positions),
        )

    def holds(self, other: "BatchShape") -> bool:
        """Return whether no size of `other` is larger."""
        return all(ours >= theirs for ours, theirs in zip(astuple(self), astuple(other), strict=True))


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def refuse_unknown_tokens(batch: Batch, token_count: int) -> None:
    """Raise `ValueError` for a token id that is not between 0 and `token_count` - 1.

    ONNX Runtime raises for such a token on the CPU. Other runtimes read memory beyond the table, return
    zeros, or lose the device.
    """
    if batch.token_ids.min() < 0 or batch.token_ids.max() >= token_count:
        raise ValueError("a token id is not in the model's vocabulary")


def index_batch(
    batch: Batch, positions: Positions, shape: BatchShape, names: Iterable[str]
) -> dict[str, IntArray]:
    """Return the inputs `names` of a graph with an `IndexedLayout`, int64 arrays with the sizes of `shape`.

    Raises `ValueError` if the batch does not fit.
    """
    needed = BatchShape.of(batch, positions)
    if not shape.holds(needed):
        raise ValueError(f"a batch of {needed} does not fit into {shape}")
    indices = _Indices.of(batch, positions, shape)
    return {name: _ARRAYS[name](indices) for name in names}


@dataclass(frozen=True, slots=True)
class _Indices:
    """What the arrays are made of. `places` (tokens,) is the position of each token in its own text."""

    batch: Batch
    positions: Positions
    shape: BatchShape
    places: IntArray
    rows: IntArray  # of each text, (texts,)

    @classmethod
    def of(cls, batch: Batch, positions: Positions, shape: BatchShape) -> "_Indices":
        places = np.arange(len(batch.token_ids)) - np.repeat(batch.offsets[:-1], batch.lengths)
        return cls(batch, positions, shape, places, positions.count_rows(batch))

    def by_position(self, values: IntArray) -> IntArray:
        return _fill(values[self.positions.tokens], self.shape.positions, 0)

    def by_text(self, values: IntArray, padding: int) -> IntArray:
        return _fill(values, self.shape.texts, padding)

    def slot_of_token(self) -> IntArray:
        batch = self.batch
        first_slots = (np.cumsum(self.rows) - self.rows) * self.shape.width
        # The queries of a row are `positions.width`, and its slots `shape.width`.
        queries = self.places - np.repeat(self.positions.shared, batch.lengths)
        rows, slots = np.divmod(queries, self.positions.width)
        slots += rows * self.shape.width + np.repeat(first_slots, batch.lengths)
        return self.by_position(slots)

    def text_of_row(self) -> IntArray:
        return np.repeat(np.arange(len(self.batch)), self.rows)

    def token_of_query(self) -> IntArray:
        """A slot that holds no query repeats the last one of its text."""
        batch, positions = self.batch, self.positions
        texts = self.text_of_row()
        number = np.arange(len(texts)) - (np.cumsum(self.rows) - self.rows)[texts]
        first = batch.offsets[texts] + positions.shared[texts] + number * positions.width
        slots = np.minimum(np.arange(self.shape.width), positions.width - 1)
        tokens = np.minimum(first[:, None] + slots, batch.offsets[texts + 1][:, None] - 1)
        return _fill_rows(positions.of_tokens[tokens], self.shape.rows)

    def token_of_slot(self) -> IntArray:
        """A slot that holds no token repeats the last token of its own text."""
        starts, lengths = self.by_text(self.batch.offsets[:-1], 0), self.by_text(self.batch.lengths, 1)
        slots = np.arange(self.shape.longest, dtype=np.int64)
        return self.positions.of_tokens[starts[:, None] + np.minimum(slots, lengths[:, None] - 1)]

    def token_of_key(self) -> IntArray:
        return _fill_rows(self.token_of_slot()[self.text_of_row()], self.shape.rows)


_ARRAYS: Mapping[str, Callable[[_Indices], IntArray]] = {
    "token_ids": lambda of: of.by_position(of.batch.token_ids),
    "patches": lambda of: of.by_position(of.batch.token_ids),
    "token_type_ids": lambda of: of.by_position(of.batch.token_type_ids),
    "token_positions": lambda of: of.by_position(of.places),
    "slot_of_token": _Indices.slot_of_token,
    "first_slots": lambda of: np.arange(of.shape.texts, dtype=np.int64) * of.shape.longest,
    "lengths": lambda of: of.by_text(of.batch.lengths, 1),
    "text_starts": lambda of: _fill(of.batch.offsets, of.shape.texts + 1, int(of.batch.offsets[-1])),
    "prompt_lengths": lambda of: of.by_text(of.batch.prompt_lengths, 0),
    "slots": lambda of: np.arange(of.shape.longest, dtype=np.int64),
    "token_of_slot": _Indices.token_of_slot,
    "token_of_query": _Indices.token_of_query,
    "token_of_key": _Indices.token_of_key,
    "seen_lengths": lambda of: of.by_text(of.batch.seen_lengths, 1),
    "wants_tokens": lambda of: of.batch.wants_tokens,
    "head_tokens": lambda of: _fill(of.batch.head_tokens, of.shape.heads, 0),
}


def _fill(values: IntArray, size: int, padding: int) -> IntArray:
    """Return `values`, (n,) or (n, m), padded with `padding` to `size` entries."""
    if len(values) == size:
        return values
    filled = np.full((size, *values.shape[1:]), padding, values.dtype)
    filled[: len(values)] = values
    return filled


def _fill_rows(values: IntArray, rows: int) -> IntArray:
    """Return `values` (n, m) padded with zeros to `rows` rows."""
    return values if len(values) == rows else np.pad(values, ((0, rows - len(values)), (0, 0)))
