"""The layout of a batch's tokens in a graph.

Architectures are written against `Layout`, never against the shape of a batch. Operators that work on single
tokens (embeddings, linear layers, norms) run over the *positions* of the layout, (positions, hidden).
Attention and pooling work on whole texts, as (texts, ..., longest). The layout converts between both forms.

A layout has one position per token, so linear layers, most of the work, compute no padding. For attention,
one Gather each for queries, keys and values pads the texts and splits the heads:

    projected                              (tokens, total * dim)     queries, keys and values side by side
    as one row per head                    (tokens * total, dim)     row = token * total + head
    gathered by (texts, heads, longest)    (texts, heads, longest, dim)

One Gather converts the result back. An empty slot repeats the last token *of the same text*, so NaN, which no
mask removes, stays within its text.

`RaggedLayout` computes the indices in the graph, from the arrays of a `Batch`. `IndexedLayout` has them as
inputs, for runtimes that compile for fixed shapes.
"""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from vecmill.graphs.ops import Ops

# Added to the score of a masked key: its weight underflows to exactly 0.
MASKED_SCORE = float(np.finfo(np.float32).min)

_END = 2**63 - 1  # "to the end", for Slice


@dataclass(frozen=True, slots=True)
class Heads:
    """Consecutive attention heads in a projection of `total` heads of `dim` dimensions each."""

    first: int
    count: int
    total: int
    dim: int

    def selected(self) -> "Heads":
        """Return these heads as the only heads of a projection."""
        return Heads(0, self.count, self.count, self.dim)


class Layout:
    """The positions of a batch's tokens, and the conversion between positions and texts.

    There is one position per token; attention and pooling alone pad. Subclasses provide the indices.

    token_ids, token_type_ids   (positions,), int64
    token_positions             (positions,), int64: the position of each token in its own text, from 0
    prompt_lengths              (texts,), int64: leading tokens that belong to a prompt
    lengths                     (texts,), int64: tokens of each text
    slots                       (longest,), int64: 0, 1, ... longest - 1
    is_token                    (texts, longest), bool: whether a text has a token in a slot
    key_bias                    (texts, 1, 1, longest), float32: 0 for keys that are attended to, else
                                `MASKED_SCORE`
    """

    token_ids: ir.Value
    token_type_ids: ir.Value
    token_positions: ir.Value
    prompt_lengths: ir.Value
    lengths: ir.Value
    slots: ir.Value
    is_token: ir.Value
    key_bias: ir.Value
    _starts: ir.Value  # (texts,): the position of each text's first token
    _token_of_slot: ir.Value  # (texts, longest): the position of each slot's token
    _slot_of_token: ir.Value  # (positions,): the index of each token among the slots of all texts

    def __init__(self, op: Ops) -> None:
        self._op = op
        self._head_rows: dict[Heads, ir.Value] = {}

    def split_heads(self, projected: ir.Value, heads: Heads) -> ir.Value:
        """Return `heads` by text: (positions, total * dim) to (texts, count, longest, dim)."""
        op = self._op
        if heads not in self._head_rows:
            first_rows = op.Unsqueeze(op.Mul(self._token_of_slot, op.constant(heads.total)), op.constant([1]))
            rows_within = np.arange(heads.first, heads.first + heads.count).reshape(1, -1, 1)
            self._head_rows[heads] = op.Add(first_rows, op.constant(rows_within))
        return op.Gather(op.Reshape(projected, op.constant([-1, heads.dim])), self._head_rows[heads])

    def merge_heads(self, attended: ir.Value, *, width: int) -> ir.Value:
        """Return heads by position: (texts, heads, longest, dim) to (positions, `width` = heads * dim)."""
        op = self._op
        by_slot = op.Reshape(op.Transpose(attended, perm=[0, 2, 1, 3]), op.constant([-1, width]))
        return op.Gather(by_slot, self._slot_of_token)

    def by_text(self, hidden: ir.Value) -> ir.Value:
        """Return (positions, width) as (texts, longest, width); empty slots repeat the last token."""
        return self._op.Gather(hidden, self._token_of_slot)

    def token_at(self, hidden: ir.Value, slots: ir.Value) -> ir.Value:
        """Return the token in slot `slots` (texts,) of each text: (positions, width) to (texts, width)."""
        return self._op.Gather(hidden, self._op.Add(self._starts, slots))

    def _mark_tokens(self, seen_lengths: ir.Value | None) -> None:
        """Set `is_token` and `key_bias` from `slots`, `lengths` and, where they differ, `seen_lengths`."""
        op = self._op
        self.is_token = op.Less(self.slots, op.Unsqueeze(self.lengths, op.constant([1])))
        is_key = self.is_token
        if seen_lengths is not None:
            is_key = op.Less(self.slots, op.Unsqueeze(seen_lengths, op.constant([1])))
        self.key_bias = op.Unsqueeze(
            op.Where(is_key, op.constant(0, np.float32), op.constant(MASKED_SCORE, np.float32)),
            op.constant([1, 2]),
        )


class RaggedLayout(Layout):
    """A layout that computes the indices in the graph, whose inputs are the arrays of a `Batch`.

    Inputs: `token_ids` (tokens,), `token_type_ids` (tokens,), `offsets` (texts + 1,) and `prompt_lengths`
    (texts,), all int64; with `has_unseen` also `seen_lengths` (texts,), the number of leading tokens of a
    text that its tokens attend to.
    """

    def __init__(self, op: Ops, *, has_unseen: bool = False) -> None:
        super().__init__(op)
        self.token_ids = op.input("token_ids", ["tokens"])
        self.token_type_ids = op.input("token_type_ids", ["tokens"])
        offsets = op.input("offsets", ["texts_plus_1"])
        self.prompt_lengths = op.input("prompt_lengths", ["texts"])
        self._starts = op.Slice(offsets, op.constant([0]), op.constant([-1]))
        self.lengths = op.Sub(op.Slice(offsets, op.constant([1]), op.constant([_END])), self._starts)
        longest = op.ReduceMax(self.lengths, keepdims=0)
        self.slots = op.Range(op.constant(0), longest, op.constant(1))
        self._mark_tokens(op.input("seen_lengths", ["texts"]) if has_unseen else None)
        nearest = op.Min(self.slots, op.Sub(op.Unsqueeze(self.lengths, op.constant([1])), op.constant([1])))
        self._token_of_slot = op.Add(op.Unsqueeze(self._starts, op.constant([1])), nearest)
        all_slots = op.Range(op.constant(0), op.Size(self.is_token), op.constant(1))
        self._slot_of_token = op.Compress(all_slots, op.Reshape(self.is_token, op.constant([-1])))
        self.token_positions = op.Mod(self._slot_of_token, longest)


class IndexedLayout(Layout):
    """A layout whose indices are inputs, computed by `engines.indices`, so shapes are known before a call.

    For runtimes that compile for fixed shapes. There may be more positions, slots and texts than the batch
    has; their results are discarded. Inputs, all int64:

    token_ids, token_type_ids, token_positions   (positions,)
    slot_of_token                                (positions,)
    starts, lengths, prompt_lengths              (texts,)
    slots                                        (longest,)
    token_of_slot                                (texts, longest)
    seen_lengths                                 (texts,), with `has_unseen`
    """

    def __init__(self, op: Ops, *, has_unseen: bool = False) -> None:
        super().__init__(op)
        self.token_ids = op.input("token_ids", ["tokens"])
        self.token_type_ids = op.input("token_type_ids", ["tokens"])
        self.token_positions = op.input("token_positions", ["tokens"])
        self._slot_of_token = op.input("slot_of_token", ["tokens"])
        self._starts = op.input("starts", ["texts"])
        self.lengths = op.input("lengths", ["texts"])
        self.prompt_lengths = op.input("prompt_lengths", ["texts"])
        self.slots = op.input("slots", ["longest"])
        self._token_of_slot = op.input("token_of_slot", ["texts", "longest"])
        self._mark_tokens(op.input("seen_lengths", ["texts"]) if has_unseen else None)
