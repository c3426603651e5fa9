"""Computation of the token positions of a batch, which graphs with an `IndexedLayout` take as input arrays.

A runtime that compiles for each new shape should see few shapes. So the numbers of positions, slots and texts
can be rounded up. The padding is cheap and harmless. Padding tokens have id 0 and position 0, and each
padding text consists of the first token of the batch. No real text refers to padding.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vecmill.values.aliases import IntArray
from vecmill.values.batch import Batch


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
    def of(cls, batch: Batch) -> "BatchShape":
        """Return the smallest shape that holds `batch`."""
        return cls(len(batch.token_ids), len(batch), int(batch.lengths.max()), len(batch.head_tokens))

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


def index_batch(batch: Batch, shape: BatchShape) -> Mapping[str, IntArray]:
    """Return the inputs of a graph with an `IndexedLayout`, int64 arrays with the sizes of `shape`.

    Raises `ValueError` if the batch does not fit.
    """
    needed = BatchShape.of(batch)
    fits = needed.positions <= shape.positions and needed.heads <= shape.heads
    if not fits or needed.texts > shape.texts or needed.longest > shape.longest:
        raise ValueError(f"a batch of {needed} does not fit into {shape}")
    starts, lengths = _fill(batch.offsets[:-1], shape.texts, 0), _fill(batch.lengths, shape.texts, 1)
    slots = np.arange(shape.longest, dtype=np.int64)
    places = np.arange(needed.positions) - np.repeat(batch.offsets[:-1], batch.lengths)
    texts = np.repeat(np.arange(needed.texts), batch.lengths)
    return {
        "token_ids": _fill(batch.token_ids, shape.positions, 0),
        "token_type_ids": _fill(batch.token_type_ids, shape.positions, 0),
        "token_positions": _fill(places, shape.positions, 0),
        "slot_of_token": _fill(texts * shape.longest + places, shape.positions, 0),
        "starts": starts,
        "lengths": lengths,
        "prompt_lengths": _fill(batch.prompt_lengths, shape.texts, 0),
        "slots": slots,
        # A slot that holds no token repeats the last token of its own text.
        "token_of_slot": starts[:, None] + np.minimum(slots, lengths[:, None] - 1),
        "seen_lengths": _fill(batch.seen_lengths, shape.texts, 1),
        "head_tokens": _fill(batch.head_tokens, shape.heads, 0),
    }


def _fill(values: IntArray, size: int, padding: int) -> IntArray:
    """Return `values` padded with `padding` to `size` entries."""
    filled = np.full(size, padding, np.int64)
    filled[: len(values)] = values
    return filled
