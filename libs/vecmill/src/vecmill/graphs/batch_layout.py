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
inputs, for runtimes that compile for fixed shapes. In a `SharedLayout`, for causal models, texts that begin
with the same tokens share positions, and the queries of attention are divided into other rows than its texts
(`values.positions`).
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import onnx_ir as ir

from vecmill.graphs.last_tokens import LastTokens
from vecmill.graphs.ops import PACKED_OPERATOR, Ops
from vecmill.models.description import LONG_TEXT_TOKENS

# Added to the score of a masked key: its weight underflows to exactly 0.
MASKED_SCORE = float(np.finfo(np.float32).min)

# With fewer tokens, attention without a mask saves less time than a branch takes.
UNMASKED_TOKENS = 128

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


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The token at some distance from each token in its text.

    `positions` (positions,), int64, are those of the neighbours, or the token's own where there is none.
    `exist` (positions, 1), bool, tells where there is one.
    """

    positions: ir.Value
    exist: ir.Value

    def read(self, op: Ops, x: ir.Value) -> ir.Value:
        """Return the rows of `x` (positions, width) at the neighbours, and zeros where there are none."""
        return op.Where(self.exist, op.Gather(x, self.positions), op.constant(0, np.float32))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutOptions:
    """What the layout of a model has beside that of any other.

    With `most_unseen` the tokens of a text may not attend to its last tokens, to so many at most. With
    `has_long` a text may be long, with `has_heads` there are token heads. With `patch_values` the tokens are
    patches of so many values; otherwise they have ids.
    """

    most_unseen: int | None = None
    has_long: bool = False
    has_heads: bool = False
    patch_values: int | None = None


PLAIN = LayoutOptions()


class Layout:
    """The positions of a batch's tokens, and the conversion between positions and texts.

    There is one position per token, or per shared token; attention and pooling alone pad. Attention has a row
    for each text, or in a `SharedLayout` other `rows` of `width` queries. Subclasses provide the indices.

    token_ids, token_type_ids   (positions,), int64
    patches                     (positions, values), uint8: the tokens of pictures, for encoders of pictures
    token_positions             (positions,), int64: the position of each token in its own text, from 0
    prompt_lengths              (texts,), int64: leading tokens that belong to a prompt
    lengths                     (texts,), int64: tokens of each text
    slots                       (longest,), int64: 0, 1, ... longest - 1
    seen_lengths                (texts,), int64: leading tokens of each text that its tokens attend to
    is_token                    (texts, longest), bool: whether a text has a token in a slot
    is_long                     (), bool, or `None` if no text of the model is long
    last_tokens                 the tokens that the last layer computes, or `None` for all
    is_unmasked                 (), bool, or `None` without flash attention: whether the batch is one text of
                                more than `UNMASKED_TOKENS` tokens
    short_slots                 the slots of a batch without a long text; the first slots of a long text
    head_tokens                 (head_tokens,), int64: positions that token heads compute, without padding; or
                                `None` for a model without such heads
    key_bias                    (texts, 1, 1, short_slots), float32: 0 for keys that are attended to, else
                                `MASKED_SCORE`
    most_unseen                 the most last tokens of a text that its tokens do not attend to
    token_of_slot               (texts, longest), int64: the position of the token in each slot of each text
    token_of_query              (rows, width), int64: the position of each query in the rows of attention
    token_of_key                (rows, longest), int64: the position of each key in the rows of attention
    text_starts                 (texts + 1,), int64: the position of each text's first token, and the end of
                                the last text, if attention is one operator (`PACKED_OPERATOR`); else `None`
    query_slots                 (rows, width), int64: the slot of each query in its text, if the rows are not
                                the texts; else `None`. Keys that a text lacks are later than its queries

    A text of more than `LONG_TEXT_TOKENS` tokens is long. It is the only text of its batch
    (`graphs.softmax_attention`). With `has_fixed_shapes` every shape in the graph must follow from the shapes
    of the inputs.
    """

    has_fixed_shapes: ClassVar[bool] = False

    token_ids: ir.Value
    patches: ir.Value
    token_type_ids: ir.Value
    token_positions: ir.Value
    prompt_lengths: ir.Value
    lengths: ir.Value
    seen_lengths: ir.Value
    slots: ir.Value
    is_token: ir.Value
    is_long: ir.Value | None
    is_unmasked: ir.Value | None
    short_slots: ir.Value
    head_tokens: ir.Value | None
    key_bias: ir.Value
    query_slots: ir.Value | None = None
    text_starts: ir.Value | None = None
    most_unseen: int
    token_of_slot: ir.Value
    token_of_query: ir.Value
    token_of_key: ir.Value
    _slot_of_token: ir.Value  # (positions,): the index of each token among the slots of all rows

    def __init__(self, op: Ops, options: LayoutOptions = PLAIN) -> None:
        self._op = op
        self._options = options
        self.most_unseen = options.most_unseen or 0
        self.last_tokens: LastTokens | None = None
        self._head_rows: dict[tuple[ir.Value, Heads], ir.Value] = {}

    def split_heads(self, projected: ir.Value, heads: Heads, tokens: ir.Value) -> ir.Value:
        """Return `heads` by row: (positions, total * dim) to (rows, count, n, dim).

        `tokens` (rows, n) is `token_of_query` or `token_of_key`.
        """
        op = self._op
        return op.Gather(op.Reshape(projected, op.constant([-1, heads.dim])), self.head_rows(heads, tokens))

    def head_rows(self, heads: Heads, tokens: ir.Value) -> ir.Value:
        """Return the indices of `heads` that `split_heads` gathers, (rows, count, n).

        They are added once, and belong to the subgraph that is recorded at the first call.
        """
        if (tokens, heads) not in self._head_rows:
            self._head_rows[tokens, heads] = self._rows_of(tokens, heads)
        return self._head_rows[tokens, heads]

    def split_first_tokens(self, projected: ir.Value, heads: Heads, count: ir.Value) -> ir.Value:
        """Return `heads` of the first `count` (1,) tokens of a lone text: (1, heads, count, dim).

        Tokens beyond the last one repeat it.
        """
        op = self._op
        numbers = op.Range(op.constant(0), op.Squeeze(count, op.constant([0])), op.constant(1))
        last = op.Sub(op.slice(self.lengths, 0, 1, axis=0), op.constant([1]))
        tokens = op.Unsqueeze(op.Min(numbers, last), op.constant([0]))
        return op.Gather(op.Reshape(projected, op.constant([-1, heads.dim])), self._rows_of(tokens, heads))

    def _rows_of(self, tokens: ir.Value, heads: Heads) -> ir.Value:
        """Return the indices of `heads` of `tokens`: (texts, n) to (texts, count, n)."""
        op = self._op
        first_rows = op.Unsqueeze(op.Mul(tokens, op.constant(heads.total)), op.constant([1]))
        rows_within = np.arange(heads.first, heads.first + heads.count).reshape(1, -1, 1)
        return op.Add(first_rows, op.constant(rows_within))

    def merge_heads(self, attended: ir.Value, *, width: int) -> ir.Value:
        """Return heads by position: (rows, heads, n, dim) to (positions, `width` = heads * dim)."""
        op = self._op
        return self.by_position(op.Transpose(attended, perm=[0, 2, 1, 3]), width=width)

    def by_position(self, by_slot: ir.Value, *, width: int) -> ir.Value:
        """Return slots by position: (..., width) in order of rows and slots to (positions, width)."""
        rows = self._op.Reshape(by_slot, self._op.constant([-1, width]))
        return self._op.Gather(rows, self._slot_of_token)

    def by_text(self, hidden: ir.Value) -> ir.Value:
        """Return (positions, width) as (texts, longest, width); empty slots repeat the last token."""
        return self._op.Gather(hidden, self.token_of_slot)

    def token_at(self, hidden: ir.Value, slots: ir.Value) -> ir.Value:
        """Return the token in slot `slots` (texts,) of each text: (positions, width) to (texts, width)."""
        return self._op.Gather(hidden, self.position_at(slots))

    def read_at(self, hidden: ir.Value, find_slots: Callable[[], ir.Value]) -> ir.Value:
        """Return the token in the slot of each text that pooling or a head reads, (texts, width).

        `hidden` is (positions, width), or has the rows of `last_tokens`, which then are those in the slots.
        """
        if self.last_tokens is not None:
            return self.last_tokens.read(self._op, hidden)
        return self.token_at(hidden, find_slots())

    def choose_last(self, slots: ir.Value, wants_all: ir.Value | None) -> LastTokens:
        """Return the tokens in `slots` (texts,) for the last layer, or all tokens if `wants_all` is true."""
        op, read = self._op, self.position_at(slots)
        texts = op.Range(op.constant(0), op.Size(slots), op.constant(1))
        if wants_all is None:
            return LastTokens(slots, read, None, texts)
        every = op.Range(op.constant(0), op.Size(self.token_positions), op.constant(1))
        kind = ir.DataType.INT64
        positions = op.choose(wants_all, lambda: op.Identity(every), lambda: op.Identity(read), kind)
        of_texts = op.choose(wants_all, lambda: op.Identity(read), lambda: op.Identity(texts), kind)
        return LastTokens(slots, positions, wants_all, of_texts)

    def has_key_after(self, before: int) -> ir.Value:
        """Return whether each token attends to any token from `before` tokens before itself on.

        (positions, 1), bool.
        """
        op = self._op
        end = op.Unsqueeze(op.Add(self.seen_lengths, op.constant(before)), op.constant([1]))
        return self.by_position(op.Less(self.slots, end), width=1)

    def position_at(self, slots: ir.Value) -> ir.Value:
        """Return the position of the token in slot `slots` (texts,) of each text, (texts,)."""
        raise NotImplementedError

    def find_neighbours(self, distance: int) -> Neighbours:
        """Return the tokens `distance` after each token in its text, or before it if it is negative."""
        op = self._op
        every = op.Range(op.constant(0), op.Size(self.token_positions), op.constant(1))
        others = op.Add(every, op.constant(distance))
        if distance <= 0:
            exists = op.GreaterOrEqual(self.token_positions, op.constant(-distance))
            return self._at_distance(every, exists, others)
        exists = self._mark_by_position(op.Sub(self.lengths, op.constant([distance])))
        # The last position may be padding of the batch, which is no token of a text.
        last = op.Sub(op.Size(self.token_positions), op.constant(1))
        return self._at_distance(every, exists, op.Min(others, last))

    def mark_seen(self) -> ir.Value:
        """Return whether the tokens of a text attend to the token at each position, (positions, 1), bool."""
        op = self._op
        return op.Unsqueeze(self._mark_by_position(self.seen_lengths), op.constant([1]))

    def _at_distance(self, own: ir.Value, exists: ir.Value, others: ir.Value) -> Neighbours:
        # A token without a neighbour reads itself: NaN of another text must not enter it.
        positions = self._op.Where(exists, others, own)
        return Neighbours(positions, self._op.Unsqueeze(exists, self._op.constant([1])))

    def _mark_by_position(self, counts: ir.Value) -> ir.Value:
        """Return whether each token is one of the first `counts` (texts,) of its text: (positions,), bool."""
        op = self._op
        is_first = op.Less(self.slots, op.Unsqueeze(counts, op.constant([1])))
        rows = op.Reshape(op.Cast(is_first, to=ir.DataType.INT64), op.constant([-1]))
        return op.Greater(op.Gather(rows, self._slot_of_token), op.constant(0))

    def apart(self) -> Self:
        """Return the layout for one branch of the graph, whose index arrays no other branch uses."""
        layout = copy.copy(self)
        layout._head_rows = {}
        return layout

    def _add_tokens(self) -> None:
        """Add the input of token ids, or of patches, the tokens of pictures."""
        values = self._options.patch_values
        if values is None:
            self.token_ids = self._op.input("token_ids", ["tokens"])
        else:
            self.patches = self._op.input("patches", ["tokens", values], ir.DataType.UINT8)

    def _mark_tokens(self) -> None:
        """Add the inputs that some models have, and set what follows from slots and lengths."""
        op, options = self._op, self._options
        has_unseen = options.most_unseen is not None
        self.seen_lengths = op.input("seen_lengths", ["texts"]) if has_unseen else self.lengths
        self.head_tokens = op.input("head_tokens", ["head_tokens"]) if options.has_heads else None
        self.is_token = op.Less(self.slots, op.Unsqueeze(self.lengths, op.constant([1])))
        self.is_long, self.is_unmasked = None, None
        self.short_slots, is_key = self.slots, self.is_token
        if op.has_flash:
            is_alone = op.Equal(op.Size(self.lengths), op.constant(1))
            is_worth = op.Greater(op.Size(self.slots), op.constant(UNMASKED_TOKENS))
            self.is_unmasked = op.And(is_alone, is_worth)
        if options.has_long:
            self.is_long = op.Greater(op.Size(self.slots), op.constant(LONG_TEXT_TOKENS))
            self.short_slots = op.slice(self.slots, 0, LONG_TEXT_TOKENS, axis=0)
        if options.has_long or self.seen_lengths is not self.lengths:
            is_key = op.Less(self.short_slots, op.Unsqueeze(self.seen_lengths, op.constant([1])))
        self.key_bias = op.Unsqueeze(
            op.Where(is_key, op.constant(0, np.float32), op.constant(MASKED_SCORE, np.float32)),
            op.constant([1, 2]),
        )


class RaggedLayout(Layout):
    """A layout that computes the indices in the graph, whose inputs are the arrays of a `Batch`.

    Inputs: `token_ids` (tokens,), `token_type_ids` (tokens,), `offsets` (texts + 1,) and `prompt_lengths`
    (texts,), all int64; with `patch_values` `patches` (tokens, values), uint8, instead of
    `token_ids`; with `most_unseen` also `seen_lengths` (texts,), the number of leading tokens of a text that
    its tokens attend to; with `has_heads` also `head_tokens`.
    """

    def __init__(self, op: Ops, options: LayoutOptions = PLAIN) -> None:
        super().__init__(op, options)
        self._add_tokens()
        self.token_type_ids = op.input("token_type_ids", ["tokens"])
        offsets = op.input("offsets", ["texts_plus_1"])
        self.prompt_lengths = op.input("prompt_lengths", ["texts"])
        # The position of each text's first token, (texts,).
        self._starts = op.Slice(offsets, op.constant([0]), op.constant([-1]))
        self.lengths = op.Sub(op.Slice(offsets, op.constant([1]), op.constant([_END])), self._starts)
        longest = op.ReduceMax(self.lengths, keepdims=0)
        self.slots = op.Range(op.constant(0), longest, op.constant(1))
        self._mark_tokens()
        nearest = op.Min(self.slots, op.Sub(op.Unsqueeze(self.lengths, op.constant([1])), op.constant([1])))
        self.token_of_slot = op.Add(op.Unsqueeze(self._starts, op.constant([1])), nearest)
        self.token_of_query = self.token_of_key = self.token_of_slot
        all_slots = op.Range(op.constant(0), op.Size(self.is_token), op.constant(1))
        self._slot_of_token = op.Compress(all_slots, op.Reshape(self.is_token, op.constant([-1])))
        self.token_positions = op.Mod(self._slot_of_token, longest)

    def position_at(self, slots: ir.Value) -> ir.Value:
        """Return positions, as `Layout.position_at` describes."""
        return self._op.Add(self._starts, slots)


class IndexedLayout(Layout):
    """A layout whose indices are inputs, computed by `values.positions`, so shapes are known before a call.

    For runtimes that compile for fixed shapes. There may be more positions, slots and texts than the batch
    has; their results are discarded. Inputs, all int64:

    token_ids, token_type_ids, token_positions   (positions,)
    patches                                      (positions, values), uint8, instead of `token_ids`
    slot_of_token                                (positions,)
    first_slots                                  (texts,): the index of each text's first slot among all slots
    lengths, prompt_lengths                      (texts,)
    slots                                        (longest,)
    token_of_slot                                (texts, longest)
    seen_lengths                                 (texts,), with `most_unseen`
    head_tokens                                  (head_tokens,), with `has_heads`
    text_starts                                  (texts + 1,), if the graph may have `PACKED_OPERATOR`
    """

    has_fixed_shapes: ClassVar[bool] = True

    def __init__(self, op: Ops, options: LayoutOptions = PLAIN) -> None:
        super().__init__(op, options)
        self._add_tokens()
        self.token_type_ids = op.input("token_type_ids", ["tokens"])
        self.token_positions = op.input("token_positions", ["tokens"])
        self._slot_of_token = op.input("slot_of_token", ["tokens"])
        self._first_slots = op.input("first_slots", ["texts"])
        self.lengths = op.input("lengths", ["texts"])
        self.prompt_lengths = op.input("prompt_lengths", ["texts"])
        self.slots = op.input("slots", ["longest"])
        if op.has_runtime(PACKED_OPERATOR):
            self.text_starts = op.input("text_starts", ["texts_plus_1"])
        self.token_of_slot = op.input("token_of_slot", ["texts", "longest"])
        self.token_of_query = self.token_of_key = self.token_of_slot
        self._mark_tokens()

    def position_at(self, slots: ir.Value) -> ir.Value:
        """Return positions, as `Layout.position_at` describes."""
        op = self._op
        token_of_slot = op.Reshape(self.token_of_slot, op.constant([-1]))
        return op.Gather(token_of_slot, op.Add(self._first_slots, slots))
