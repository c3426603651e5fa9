"""Where the tokens of a batch lie, computed outside the graph: the inputs of `graphs.layout.IndexedLayout`.

A runtime that compiles for the shapes that it sees should see few. So positions, slots and texts may
be rounded up; what fills the gap is cheap and harmless: token 0 at place 0, and texts of one
token, the first of the batch. Nothing of a real text ever refers to it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vecmill.types import Batch, IntArray


@dataclass(frozen=True, slots=True)
class Extent:
    """How much room a call has: `positions` for tokens, `texts`, and `longest`, slots of each text."""

    positions: int
    texts: int
    longest: int

    @classmethod
    def of(cls, batch: Batch) -> "Extent":
        """What `batch` needs."""
        return cls(len(batch.token_ids), len(batch), int(batch.lengths.max()))

    def rounded(self, *, positions: int = 1, texts: int = 1, longest: int = 1) -> "Extent":
        """This, each rounded up to a multiple."""
        return Extent(
            -(-self.positions // positions) * positions,
            -(-self.texts // texts) * texts,
            -(-self.longest // longest) * longest,
        )


def refuse_unknown_tokens(batch: Batch, token_count: int) -> None:
    """Raise `ValueError` for a token that is not below `token_count`.

    Where ONNX Runtime raises on a processor, others read what happens to lie beyond the table, or give
    zeros, or are lost by it.
    """
    if batch.token_ids.min() < 0 or batch.token_ids.max() >= token_count:
        raise ValueError("a token that the model does not have")


def index_batch(batch: Batch, extent: Extent) -> Mapping[str, IntArray]:
    """The inputs of a graph with an `IndexedLayout`, all int64, in the shapes of `extent`.

    Raises `ValueError` if the batch does not fit.
    """
    needed = Extent.of(batch)
    if needed.positions > extent.positions or needed.texts > extent.texts or needed.longest > extent.longest:
        raise ValueError(f"a batch of {needed} does not fit into {extent}")
    starts, lengths = _fill(batch.offsets[:-1], extent.texts, 0), _fill(batch.lengths, extent.texts, 1)
    slots = np.arange(extent.longest, dtype=np.int64)
    places = np.arange(needed.positions) - np.repeat(batch.offsets[:-1], batch.lengths)
    texts = np.repeat(np.arange(needed.texts), batch.lengths)
    return {
        "token_ids": _fill(batch.token_ids, extent.positions, 0),
        "token_type_ids": _fill(batch.token_type_ids, extent.positions, 0),
        "token_positions": _fill(places, extent.positions, 0),
        "slot_of_token": _fill(texts * extent.longest + places, extent.positions, 0),
        "starts": starts,
        "lengths": lengths,
        "prompt_lengths": _fill(batch.prompt_lengths, extent.texts, 0),
        "slots": slots,
        # A slot that holds no token repeats the last token of its own text.
        "token_of_slot": starts[:, None] + np.minimum(slots, lengths[:, None] - 1),
        "seen_lengths": _fill(batch.seen_lengths, extent.texts, 1),
    }


def _fill(values: IntArray, size: int, filler: int) -> IntArray:
    """`values` and as many of `filler` as make `size` of them."""
    filled = np.full(size, filler, np.int64)
    filled[: len(values)] = values
    return filled
