"""Computation of the token positions of a batch, which graphs with an `IndexedLayout` take as input arrays.

A runtime that compiles for each new shape should see few shapes. So the numbers of positions, slots and texts
can be rounded up. The padding is cheap and harmless. Padding tokens have id 0 and position 0, and each
padding text consists of the first token of the batch. No real text refers to padding.

In a causal model the hidden state of a token depends on the tokens before it alone. So texts that begin with
the same tokens, such as the documents of one query or texts with the same instruction, share the positions
of these tokens:

    texts       a b c d     a b e     a f          9 tokens
    positions   0 1 2 3     0 1 4     0 5          6 positions

Embeddings, linear layers and norms, most of the work, compute each position once. Attention computes each
text as a whole, from the keys and values of its positions, and keeps the result of a shared token from one
of its texts. The texts of a batch form a trie, whose nodes are the positions.

Source: "RadixMLP: Intra-batch Deduplication for Causal Transformers", arXiv 2601.15013.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from vecmill.values.aliases import IntArray
from vecmill.values.batch import Batch
from vecmill.values.embeddings import Output


@dataclass(frozen=True, slots=True)
class Positions:
    """The positions of the tokens of a batch in a graph.

    `of_tokens` (tokens,) is the position of each token, `tokens` (positions,) a token at each position, both
    int64.
    """

    of_tokens: IntArray
    tokens: IntArray

    @classmethod
    def of(cls, batch: Batch, *, shares_prefixes: bool) -> "Positions":
        """Return the positions of `batch`; with `shares_prefixes` equal beginnings of texts share theirs.

        Only for the usual output: other outputs may have a row for each position.
        """
        if shares_prefixes and len(batch) > 1 and batch.outputs == (Output.USUAL,):
            return _share_prefixes(batch)
        every = np.arange(len(batch.token_ids))
        return cls(every, every)

    def __len__(self) -> int:
        return len(self.tokens)


def _share_prefixes(batch: Batch) -> Positions:
    """Return positions in the order of the sorted texts, where equal beginnings are next to each other."""
    bounds = batch.offsets.tolist()
    texts = [batch.token_ids[start:end] for start, end in pairwise(bounds)]
    of_tokens = np.empty(len(batch.token_ids), np.int64)
    tokens = []
    count, before, its_positions = 0, texts[0][:0], of_tokens[:0]
    # Big-endian bytes of numbers that are not negative sort as the numbers do.
    for index in sorted(range(len(texts)), key=lambda index: texts[index].astype(">i8").tobytes()):
        start, text = bounds[index], texts[index]
        shared = _count_equal(before, text)
        own = len(text) - shared
        positions = of_tokens[start : start + len(text)]
        positions[:shared] = its_positions[:shared]
        positions[shared:] = np.arange(count, count + own)
        tokens.append(np.arange(start + shared, start + len(text)))
        count, before, its_positions = count + own, text, positions
    return Positions(of_tokens, np.concatenate(tokens))


def _count_equal(one: IntArray, other: IntArray) -> int:
    """Return the number of leading tokens that are the same in both."""
    length = min(len(one), len(other))
    differs = one[:length] != other[:length]
    return int(differs.argmax()) if differs.any() else length


@dataclass(frozen=True, slots=True)
class BatchShape:
    """The sizes of a call.

    Token `positions`, `texts`, `longest`, the number of slots of each text, and `heads`, the number of
    positions that the heads compute.
    """

    positions: int
    texts: int
    longest: int
    heads: int = 0

    @classmethod
    def of(cls, batch: Batch, positions: Positions) -> "BatchShape":
        """Return the smallest shape that holds `batch`."""
        return cls(len(positions), len(batch), int(batch.lengths.max()), len(batch.head_tokens))

    def rounded(self, *, positions: int = 1, texts: int = 1, longest: int = 1) -> "BatchShape":
        """Return this shape with each size rounded up to a multiple of the given number."""
        return BatchShape(
            -(-self.positions // positions) * positions,
            -(-self.texts // texts) * texts,
            -(-self.longest // longest) * longest,
            -(-self.heads // positions) * positions,
        )


def refuse_unknown_tokens(batch: Batch, token_count: int) -> None:
    """Raise `ValueError` for a token id that is not between 0 and `token_count` - 1.

    ONNX Runtime raises for such a token on the CPU. Other runtimes read memory beyond the table, return
    zeros, or lose the device.
    """
    if batch.token_ids.min() < 0 or batch.token_ids.max() >= token_count:
        raise ValueError("a token id is not in the model's vocabulary")


def index_batch(batch: Batch, positions: Positions, shape: BatchShape) -> Mapping[str, IntArray]:
    """Return the inputs of a graph with an `IndexedLayout`, int64 arrays with the sizes of `shape`.

    Raises `ValueError` if the batch does not fit.
    """
    needed = BatchShape.of(batch, positions)
    fits = needed.positions <= shape.positions and needed.heads <= shape.heads
    if not fits or needed.texts > shape.texts or needed.longest > shape.longest:
        raise ValueError(f"a batch of {needed} does not fit into {shape}")
    starts, lengths = _fill(batch.offsets[:-1], shape.texts, 0), _fill(batch.lengths, shape.texts, 1)
    slots = np.arange(shape.longest, dtype=np.int64)
    first_slots = np.arange(shape.texts, dtype=np.int64) * shape.longest
    tokens = positions.tokens
    places = np.arange(len(batch.token_ids)) - np.repeat(batch.offsets[:-1], batch.lengths)
    token_slots = np.repeat(first_slots[: len(batch)], batch.lengths) + places
    # A slot that holds no token repeats the last token of its own text.
    token_of_slot = starts[:, None] + np.minimum(slots, lengths[:, None] - 1)
    return {
        "token_ids": _fill(batch.token_ids[tokens], shape.positions, 0),
        "token_type_ids": _fill(batch.token_type_ids[tokens], shape.positions, 0),
        "token_positions": _fill(places[tokens], shape.positions, 0),
        "slot_of_token": _fill(token_slots[tokens], shape.positions, 0),
        "first_slots": first_slots,
        "lengths": lengths,
        "prompt_lengths": _fill(batch.prompt_lengths, shape.texts, 0),
        "slots": slots,
        "token_of_slot": positions.of_tokens[token_of_slot],
        "seen_lengths": _fill(batch.seen_lengths, shape.texts, 1),
        "head_tokens": _fill(batch.head_tokens, shape.heads, 0),
    }


def _fill(values: IntArray, size: int, padding: int) -> IntArray:
    """Return `values` padded with `padding` to `size` entries."""
    filled = np.full(size, padding, np.int64)
    filled[: len(values)] = values
    return filled
