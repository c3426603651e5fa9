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

import onnx_ir as ir

from vecmill.graphs.ops import Ops


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

    def select(self, op: Ops, x: ir.Value) -> ir.Value:
        """Return the rows of `x` (positions, width) that the last layer computes, (n, width)."""
        return op.Gather(x, self.positions)

    def read(self, op: Ops, hidden: ir.Value) -> ir.Value:
        """Return the token of each text that is read: (n, width) to (texts, width)."""
        return hidden if self.wants_all is None else op.Gather(hidden, self.of_texts)
