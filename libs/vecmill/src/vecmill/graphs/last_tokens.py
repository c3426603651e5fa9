"""The tokens that the last layer of a model computes, if only one token of each text is read of it.

A model that pools its first or last token, and a head that reads one token, need the last layer for that
token alone. All other tokens are only keys and values there. So the queries of the last layer, and all that
follows, run over one row for each text instead of one for each token:

    layers before     x             (positions, hidden)
    last layer        keys, values  of all positions
                      queries       of `positions`, (texts,)
                      result        (texts, hidden)

A batch may also ask for the hidden states of all tokens (`Output.HIDDEN_STATES`). Then the last layer
computes all positions, as the layers before it do. No weights stand in a branch, because a runtime packs
weights for each subgraph again: only the indices of positions, and the products of attention, are chosen by
`wants_all`.
"""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from vecmill.graphs.batch_layout import MASKED_SCORE, Layout
from vecmill.graphs.ops import Ops
from vecmill.models.encoder_config import AttentionWindow


@dataclass(frozen=True, slots=True)
class LastTokens:
    """The positions of the last layer.

    slots       (texts,), int64: the slot of each text that is read
    positions   (n,), int64: the positions that the last layer computes
    wants_all   (), bool: whether these are all positions; or `None` if they never are
    of_texts    (texts,), int64: the indices in `positions` of the tokens that are read
    """

    slots: ir.Value
    positions: ir.Value
    wants_all: ir.Value | None
    of_texts: ir.Value

    @classmethod
    def at(cls, op: Ops, layout: Layout, slots: ir.Value, wants_all: ir.Value | None) -> "LastTokens":
        """Return the tokens in `slots` (texts,), or all tokens if `wants_all` is true."""
        read = layout.position_at(slots)
        texts = op.Range(op.constant(0), op.Size(slots), op.constant(1))
        if wants_all is None:
            return cls(slots, read, None, texts)
        every = op.Range(op.constant(0), op.Size(layout.token_positions), op.constant(1))
        kind = ir.DataType.INT64
        positions = op.choose(wants_all, lambda: op.Identity(every), lambda: op.Identity(read), kind)
        of_texts = op.choose(wants_all, lambda: op.Identity(read), lambda: op.Identity(texts), kind)
        return cls(slots, positions, wants_all, of_texts)

    def select(self, op: Ops, x: ir.Value) -> ir.Value:
        """Return the rows of `x` (positions, width) that the last layer computes, (n, width)."""
        return op.Gather(x, self.positions)

    def read(self, op: Ops, hidden: ir.Value) -> ir.Value:
        """Return the token of each text that is read: (n, width) to (texts, width)."""
        return hidden if self.wants_all is None else op.Gather(hidden, self.of_texts)

    def mask(self, op: Ops, layout: Layout, window: AttentionWindow) -> ir.Value:
        """Return 0 for keys that the tokens in `slots` attend to, else `MASKED_SCORE`.

        Shape: (texts, 1, 1, longest).
        """
        keys, last = layout.slots, op.constant([1])
        slots = op.Unsqueeze(self.slots, last)
        is_key = op.Less(keys, op.Unsqueeze(layout.seen_lengths, last))
        if window.before is not None:
            is_key = op.And(is_key, op.GreaterOrEqual(keys, op.Sub(slots, op.constant(window.before))))
        if window.after is not None:
            is_key = op.And(is_key, op.LessOrEqual(keys, op.Add(slots, op.constant(window.after))))
        bias = op.Where(is_key, op.constant(0, np.float32), op.constant(MASKED_SCORE, np.float32))
        return op.Unsqueeze(bias, op.constant([1, 2]))
