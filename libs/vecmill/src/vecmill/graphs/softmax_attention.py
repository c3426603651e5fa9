"""Softmax attention over the texts of a batch: short texts as a whole, a long text in blocks of queries.

For short texts the scores of each head are one (longest, longest) square. A long text is alone in its batch
(`LONG_TEXT_TOKENS`). A loop takes its queries in blocks. The scores of a block have about `SCORE_BYTES` in
all, so memory grows with the length of a text and not with its square. Each block reads only the keys in the
window of its queries:

    window, before = after = 2         keys    0 1 2 3 4 5 6 7 8
    queries in blocks of 3     block 0 (0-2)   x x x x x
                               block 1 (3-5)     x x x x x x x
                               block 2 (6-8)           x x x x x

So the work of a layer with a sliding window is linear too, and causal attention takes half of the products.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from vecmill.graphs.batch_layout import MASKED_SCORE, Heads, Layout
from vecmill.graphs.distances import DistanceBiases, LinearBiases
from vecmill.graphs.flash_attention import FlashAttention
from vecmill.graphs.last_tokens import LastTokens
from vecmill.graphs.ops import MOST_PACKED, PACKED_MULTIPLE, PACKED_OPERATOR, Ops, soft_cap
from vecmill.models.encoder_config import BIDIRECTIONAL, CAUSAL, AttentionWindow

SCORE_BYTES = 96 * 2**20
"""The most bytes of the scores of one block, unless `_FEWEST_QUERIES` need more."""

# Of a block. The keys are packed again for each block, so small blocks are slower.
_FEWEST_QUERIES, _MOST_QUERIES = 32, 512
_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Projection:
    """Queries, keys or values: the `heads` of `values`, (positions, total * dim).

    The last axis may be split: (positions, total, dim).
    """

    values: ir.Value
    heads: Heads


@dataclass(frozen=True, slots=True)
class AttentionBias:
    """What is added to attention scores: the mask of a window, and the biases of distances if there are any.

    `short` is the bias for texts that are not long. Its shape broadcasts to (rows, heads, queries, keys).
    `has_key` (positions, 1), bool, tells which tokens attend to any; `None` if all do.
    """

    short: ir.Value
    window: AttentionWindow
    distances: DistanceBiases | LinearBiases | None
    has_key: ir.Value | None = None

    @classmethod
    def of(
        cls,
        op: Ops,
        layout: Layout,
        window: AttentionWindow = BIDIRECTIONAL,
        distances: DistanceBiases | LinearBiases | None = None,
    ) -> "AttentionBias":
        """Add the bias of short texts, once for all layers."""
        short, has_key = _window_bias(op, layout, window), None
        if distances is not None:
            assert layout.query_slots is None  # no causal model has them
            short = op.Add(distances.between(op, layout.short_slots, layout.short_slots), short)
        if window.may_miss_all(layout.most_unseen):
            assert window.before is not None
            has_key = layout.has_key_after(window.before)
        return cls(short, window, distances, has_key)

    def drop_keyless(self, op: Ops, attended: ir.Value) -> ir.Value:
        """Return attended values, (positions, width), with 0 for tokens that attend to none.

        Their softmax weighs whatever is masked: the padding beside them too, or the keys of a block alone.
        The classes of transformers compute 0 for them (`sdpa`).
        """
        if self.has_key is None:
            return attended
        return op.Where(self.has_key, attended, op.constant(0, np.float32))

    def between(self, op: Ops, queries: ir.Value, keys: ir.Value) -> ir.Value | None:
        """Return the bias of tokens `keys` for tokens `queries` of one text, or `None` if it is 0.

        `queries` and `keys` are positions in the text, int64. The bias broadcasts to (1, heads, queries,
        keys).
        """
        by_distance = None if self.distances is None else self.distances.between(op, queries, keys)
        if self.window == BIDIRECTIONAL:
            return by_distance
        mask = _mask_outside(op, self.window, queries, keys)
        return mask if by_distance is None else op.Add(by_distance, mask)


@dataclass(frozen=True, slots=True)
class Block:
    """A block of queries and the keys that they attend to, as positions in the text, (n,) int64."""

    queries: ir.Value
    keys: ir.Value


Weigh = Callable[[ir.Value, ir.Value, ir.Value, Block | None], ir.Value]
"""Returns attended values, (rows, heads, queries, dim), from queries, keys and values by row.

Without a block, all queries of a row attend to the keys of its text, which is not long.
"""


@dataclass(frozen=True, slots=True)
class Attention:
    """The attention of one layer from its projections. Keys and values may have fewer heads than queries."""

    query: Projection
    key: Projection
    value: Projection
    window: AttentionWindow

    def add(self, op: Ops, layout: Layout, weigh: Weigh, *, scale: float | None = None) -> ir.Value:
        """Add attention, computed by `weigh`. Return attended values, (positions, heads * dim).

        With `scale`, `weigh` is the softmax of products times `scale`, and only masks are added to them.
        """
        if scale is not None and self._fits_packed(op, layout):
            return self._add_packed(op, layout, scale)
        is_alone, flash_scale = layout.is_long, None
        if op.has_flash and self._fits_flash(layout):
            flash_scale = scale
        if flash_scale is not None and self.window == BIDIRECTIONAL:
            is_alone = layout.is_unmasked or is_alone
        if is_alone is None:
            return self._add_short(op, layout, weigh)
        for part, tokens in self._parts(layout):
            layout.head_rows(part.heads, tokens)  # outside of the branches, for all layers

        def add_alone() -> ir.Value:
            if flash_scale is None:
                return self._add_blocks(op, layout, weigh)
            return self._add_flash(op, layout, flash_scale)

        return op.choose(is_alone, add_alone, lambda: self._add_short(op, layout, weigh))

    def add_last(
        self, op: Ops, layout: Layout, last: LastTokens, weigh: Weigh, weigh_last: Weigh, scale: float | None
    ) -> ir.Value:
        """Add the attention of the last layer, whose queries are those of `last`: (n, heads * dim).

        `weigh` and `scale` are those of `add`, for all queries. `weigh_last` is for one query of each text.
        """

        def add_one() -> ir.Value:
            apart, heads = layout.apart(), self.query.heads
            shape = op.constant([-1, heads.count, 1, heads.dim])
            query = op.Reshape(select_columns(op, self.query), shape)
            key, value = (
                apart.split_heads(part.values, part.heads, layout.token_of_slot)
                for part in (self.key, self.value)
            )
            return op.Reshape(weigh_last(query, key, value, None), op.constant([-1, self._width]))

        if last.wants_all is None:
            return add_one()
        return op.choose(last.wants_all, lambda: self.add(op, layout.apart(), weigh, scale=scale), add_one)

    def _add_short(self, op: Ops, layout: Layout, weigh: Weigh) -> ir.Value:
        query, key, value = (
            layout.split_heads(part.values, part.heads, tokens) for part, tokens in self._parts(layout)
        )
        return layout.merge_heads(weigh(query, key, value, None), width=self._width)

    def _parts(self, layout: Layout) -> tuple[tuple[Projection, ir.Value], ...]:
        """Return queries, keys and values, each with the positions of its tokens."""
        keys = layout.token_of_key
        return (self.query, layout.token_of_query), (self.key, keys), (self.value, keys)

    def _add_flash(self, op: Ops, layout: Layout, scale: float) -> ir.Value:
        query, key, value = (select_columns(op, part) for part in (self.query, self.key, self.value))
        if layout.seen_lengths is not layout.lengths:
            first, axis = op.constant([0]), op.constant([0])
            key, value = (op.Slice(part, first, layout.seen_lengths, axis) for part in (key, value))
        flash = FlashAttention(query, key, value, self.query.heads, self.key.heads, scale)
        return flash.attend_before(op, layout) if self.window == CAUSAL else flash.attend_all(op)

    def _add_packed(self, op: Ops, layout: Layout, scale: float) -> ir.Value:
        """Add attention as one operator over the texts side by side, without padding."""
        assert layout.text_starts is not None
        window = {"before": self.window.before, "after": self.window.after}
        return op.add_runtime(
            PACKED_OPERATOR,
            *(select_columns(op, part) for part in (self.query, self.key, self.value)),
            layout.text_starts,
            op.Size(layout.slots),
            scale=scale,
            heads=self.query.heads.count,
            shared=self.key.heads.count,
            **{side: -1 if limit is None else limit for side, limit in window.items()},
        )

    def _fits_packed(self, op: Ops, layout: Layout) -> bool:
        dim, all_seen = self.query.heads.dim, layout.seen_lengths is layout.lengths
        has_kernel = dim == self.value.heads.dim and dim % PACKED_MULTIPLE == 0 and dim <= MOST_PACKED
        return op.has_runtime(PACKED_OPERATOR) and all_seen and has_kernel

    def _fits_flash(self, layout: Layout) -> bool:
        if self.query.heads.dim != self.value.heads.dim:
            return False
        all_seen = layout.seen_lengths is layout.lengths
        return self.window == BIDIRECTIONAL or (self.window == CAUSAL and all_seen)

    def _add_blocks(self, op: Ops, layout: Layout, weigh: Weigh) -> ir.Value:
        length, seen = (op.slice(part, 0, 1, axis=0) for part in (layout.lengths, layout.seen_lengths))
        count, size = self._divide(op, length, seen)
        axis = op.constant([2])
        query = layout.split_first_tokens(self.query.values, self.query.heads, op.Mul(count, size))
        key, value = (
            layout.split_first_tokens(part.values, part.heads, seen) for part in (self.key, self.value)
        )

        def add_block(number: ir.Value) -> ir.Value:
            first = op.Mul(number, size)
            end = op.Add(first, size)
            first_key, end_key = self._choose_keys(op, first, end, seen)
            block = Block(_count_up(op, first, end), _count_up(op, first_key, end_key))
            queries, (keys, values) = op.Slice(query, first, end, axis), (key, value)
            if self.window != BIDIRECTIONAL:  # a slice of all keys would copy them
                keys, values = (op.Slice(part, first_key, end_key, axis) for part in (key, value))
            attended = weigh(queries, keys, values, block)
            return op.Transpose(attended, perm=[0, 2, 1, 3])

        return layout.by_position(
            op.stack_results(op.Squeeze(count, op.constant([0])), add_block), width=self._width
        )

    def _divide(self, op: Ops, length: ir.Value, seen: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Return the number of blocks and the queries of a block, both (1,); the last block may be padded."""
        keys, most = seen, _MOST_QUERIES
        before, after = self.window.before, self.window.after
        if before is not None and after is not None:
            # Blocks as large as the window read twice as many keys as their queries need.
            most = min(max(before + after, 2 * _FEWEST_QUERIES), _MOST_QUERIES)
            keys = op.Min(seen, op.constant([before + after + most]))
        fitting = op.Div(op.constant([SCORE_BYTES // (_FLOAT_BYTES * self.query.heads.count)]), keys)
        queries = op.Clip(fitting, op.constant(_FEWEST_QUERIES), op.constant(most))
        count = _divide_up(op, length, queries)
        return count, _divide_up(op, length, count)

    def _choose_keys(
        self, op: Ops, first: ir.Value, end: ir.Value, seen: ir.Value
    ) -> tuple[ir.Value, ir.Value]:
        """Return the first key of queries `first` to `end`, and the end of their keys; at least one key."""
        first_key, end_key = op.constant([0]), seen
        if self.window.before is not None:
            far = op.Max(op.Sub(first, op.constant([self.window.before])), op.constant([0]))
            first_key = op.Min(far, op.Sub(seen, op.constant([1])))
        if self.window.after is not None:
            end_key = op.Min(op.Add(end, op.constant([self.window.after])), seen)
        return first_key, end_key

    @property
    def _width(self) -> int:
        return self.query.heads.count * self.value.heads.dim


@dataclass(frozen=True, slots=True)
class ScaledProducts:
    """Attention by scaled products of queries and keys: softmax(query . key * scale + bias) . value.

    With `cap` the scaled products are bounded smoothly (`soft_cap`) before the bias is added.

    In grouped query attention `n` query heads share one head of keys and values. Keys and values are not
    repeated; the query heads of a group are reshaped to one longer head:

        queries   (rows, heads, queries, dim)          to (rows, shared, n * queries, dim)
        scores    (rows, shared, n * queries, keys)    to (rows, heads, queries, keys)
    """

    query: Heads
    key: Heads
    bias: AttentionBias
    scale: float
    cap: float | None = None

    def plain_scale(self) -> float | None:
        """Return the scale, if nothing but masks changes the scaled products."""
        return self.scale if self.cap is None and self.bias.distances is None else None

    def weigh(
        self, op: Ops, query: ir.Value, key: ir.Value, value: ir.Value, block: Block | None
    ) -> ir.Value:
        """Return attended values, as `Weigh` describes.

        ONNX Runtime fuses the transpose and the scale with the product.
        """
        bias = self.bias.short if block is None else self.bias.between(op, block.queries, block.keys)
        heads, shared, dim = self.query.count, self.key.count, self.query.dim
        is_grouped = heads != shared
        if is_grouped:
            query = op.Reshape(query, op.constant([0, shared, -1, dim]))
        scores = op.MatMul(query, op.Transpose(key, perm=[0, 1, 3, 2]))
        scores = op.Mul(scores, op.constant(self.scale, np.float32))
        if self.cap is not None:
            scores = soft_cap(op, scores, self.cap)
        if is_grouped:
            scores = op.Reshape(scores, op.constant([0, heads, -1, 0]))
        weights = op.Softmax(scores if bias is None else op.Add(scores, bias), axis=-1)
        if is_grouped:
            weights = op.Reshape(weights, op.constant([0, shared, -1, 0]))
        attended = op.MatMul(weights, value)
        return op.Reshape(attended, op.constant([0, heads, -1, dim])) if is_grouped else attended


def mask_last(op: Ops, layout: Layout, last: LastTokens, window: AttentionWindow) -> ir.Value:
    """Return 0 for keys that the tokens in `last.slots` attend to, else `MASKED_SCORE`.

    Shape: (texts, 1, 1, longest).
    """
    keys, axis = layout.slots, op.constant([1])
    slots = op.Unsqueeze(last.slots, axis)
    is_key = op.Less(keys, op.Unsqueeze(layout.seen_lengths, axis))
    if window.before is not None:
        is_key = op.And(is_key, op.GreaterOrEqual(keys, op.Sub(slots, op.constant(window.before))))
    if window.after is not None:
        is_key = op.And(is_key, op.LessOrEqual(keys, op.Add(slots, op.constant(window.after))))
    bias = op.Where(is_key, op.constant(0, np.float32), op.constant(MASKED_SCORE, np.float32))
    return op.Unsqueeze(bias, op.constant([1, 2]))


def select_columns(op: Ops, projection: Projection) -> ir.Value:
    """Return the heads of `projection` side by side: (positions, count * dim)."""
    heads, total = projection.heads, projection.heads.total * projection.heads.dim
    first, stop = heads.first * heads.dim, (heads.first + heads.count) * heads.dim
    values = op.Reshape(projection.values, op.constant([-1, total]))
    return values if stop - first == total else op.slice(values, first, stop, axis=1)


def _window_bias(op: Ops, layout: Layout, window: AttentionWindow) -> ir.Value:
    """Return 0 for keys that a query attends to, else `MASKED_SCORE`, float32, for texts that are not long.

    Shape: (rows, 1, 1 or queries, keys).
    """
    if window == BIDIRECTIONAL:
        return layout.key_bias
    if layout.query_slots is not None:
        bias = _mask_outside(op, window, layout.query_slots, layout.short_slots)
        return op.Unsqueeze(bias, op.constant([1]))
    bias = _mask_outside(op, window, layout.short_slots, layout.short_slots)
    # Min, not a sum: two masks must not add up to minus infinity.
    return op.Min(layout.key_bias, op.Unsqueeze(bias, op.constant([0, 1])))


def _mask_outside(op: Ops, window: AttentionWindow, queries: ir.Value, keys: ir.Value) -> ir.Value:
    """Return 0 for slots `keys` in the window of slots `queries`, else `MASKED_SCORE`.

    (..., queries) and (keys,) to (..., queries, keys). At least one side of the window must be limited.
    """
    queries = op.Unsqueeze(queries, op.constant([-1]))
    # Bounds instead of distances: a distance for each pair would take 8 bytes.
    limits = []
    if window.before is not None:
        limits.append(op.GreaterOrEqual(keys, op.Sub(queries, op.constant(window.before))))
    if window.after is not None:
        limits.append(op.LessOrEqual(keys, op.Add(queries, op.constant(window.after))))
    is_inside = limits[0] if len(limits) == 1 else op.And(*limits)
    return op.Where(is_inside, op.constant(0, np.float32), op.constant(MASKED_SCORE, np.float32))


def _count_up(op: Ops, first: ir.Value, end: ir.Value) -> ir.Value:
    first, end = (op.Squeeze(bound, op.constant([0])) for bound in (first, end))
    return op.Range(first, end, op.constant(1))


def _divide_up(op: Ops, number: ir.Value, divisor: ir.Value) -> ir.Value:
    return op.Div(op.Sub(op.Add(number, divisor), op.constant([1])), divisor)
