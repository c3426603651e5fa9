"""Attention of a lone long text by the flash attention of ONNX Runtime (Dao et al., 2022).

`MultiHeadAttention` of ONNX Runtime's own operators computes the scores in tiles that stay in the cache, if
no score is masked. So attention to all tokens is one node. Causal attention takes the queries in blocks:

    keys                 0 1 2 3 4 5 6 7
    block 0  (0, 1)      d .                  d, o   computed; d with a mask
             (2, 3)      d d                  .      not computed
    block 1  (2, 3)      o o d .
                         o o d d
    block 2  (4, 5)      o o o o d .
                         o o o o d d

The squares on the diagonal (d) are computed together, with a mask. `MultiHeadAttention` computes what is left
of them (o). Both parts must be weighed by the sums of their exponentials, which the operator does not return.
So the keys begin with one that stands for the diagonal, the *sink*: its score is the greatest score m of the
query on the diagonal, and its value has 1 in a dimension of its own, in which all other values have 0. What
the operator returns there is the weight p of the sink. With the sum s and the weighted values u of the
exponentials exp(score - m) on the diagonal, and what the operator returns in the other dimensions, o, the
attention is (o + p * u) / (1 + p * (s - 1)). All terms are positive, so nothing cancels out.
"""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from vecmill.graphs.batch_layout import MASKED_SCORE, Heads, Layout
from vecmill.graphs.ops import FLASH_OPERATOR, Ops

# Queries of a block. With more, more scores are computed with a mask, which takes four times as long.
BLOCK_QUERIES = 128


@dataclass(frozen=True, slots=True)
class FlashAttention:
    """Attention of one text without a limit of distance: `softmax(query . key * scale) . value`.

    `query`, `key` and `value` are by position, (positions, heads * dim). Keys and values may have fewer heads
    than queries.
    """

    query: ir.Value
    key: ir.Value
    value: ir.Value
    heads: Heads
    shared: Heads
    scale: float

    def attend_all(self, op: Ops) -> ir.Value:
        """Let each query attend to all keys. Return attended values, (queries, heads * dim)."""
        shared, dim, group = self.shared.count, self.heads.dim, self.heads.count // self.shared.count
        query, first = self.query, op.constant([0])
        if group > 1:  # the queries of all heads of a group are queries of one head
            query = op.Reshape(query, op.constant([-1, shared, group, dim]))
            query = op.Reshape(op.Transpose(query, perm=[2, 0, 1, 3]), op.constant([-1, shared * dim]))
        rows = (op.Unsqueeze(part, first) for part in (query, self.key, self.value))
        attended = self._attend(op, *rows)
        if group > 1:
            attended = op.Reshape(attended, op.constant([group, -1, shared, dim]))
            attended = op.Transpose(attended, perm=[1, 2, 0, 3])
        return op.Reshape(attended, op.constant([-1, self.heads.count * dim]))

    def attend_before(self, op: Ops, layout: Layout) -> ir.Value:
        """Let each query attend to its own key and those before it. Return (queries, heads * dim)."""
        shared, dim = self.shared.count, self.heads.dim
        group = self.heads.count // shared
        length = op.slice(layout.lengths, 0, 1, axis=0)
        size = op.constant([BLOCK_QUERIES])
        count = op.Div(op.Add(length, op.constant([BLOCK_QUERIES - 1])), size)
        slots = op.Range(op.constant(0), _scalar(op, op.Mul(count, size)), op.constant(1))
        tokens = op.Min(slots, op.Sub(length, op.constant([1])))

        def in_blocks(part: ir.Value, heads: int) -> ir.Value:
            shape = op.constant([-1, BLOCK_QUERIES, shared, heads, dim])
            return op.Transpose(op.Reshape(op.Gather(part, tokens), shape), perm=[0, 2, 3, 1, 4])

        rows = op.constant([0, shared, -1, dim])
        query, key, value = (
            op.Reshape(in_blocks(part, heads), rows)
            for part, heads in ((self.query, group), (self.key, 1), (self.value, 1))
        )
        greatest, total, diagonal = self._add_diagonal(op, query, key, value)
        before = self._add_before(op, query, greatest, count)
        weight = op.slice(before, dim, dim + 1, axis=3)
        one = op.constant(1, np.float32)
        attended = op.Div(
            op.Add(op.slice(before, 0, dim, axis=3), op.Mul(weight, diagonal)),
            op.Add(op.Mul(weight, op.Sub(total, one)), one),
        )
        by_head = op.Reshape(attended, op.constant([-1, shared, group, BLOCK_QUERIES, dim]))
        by_token = op.Transpose(by_head, perm=[0, 3, 1, 2, 4])
        padded = op.Reshape(by_token, op.constant([-1, self.heads.count * dim]))
        return op.Slice(padded, op.constant([0]), length, op.constant([0]))

    def _add_diagonal(
        self, op: Ops, query: ir.Value, key: ir.Value, value: ir.Value
    ) -> tuple[ir.Value, ir.Value, ir.Value]:
        """Return m, s and u of the squares on the diagonal, each (blocks, shared, queries, 1 or dim)."""
        last, heads = op.constant([-1]), self.heads.count
        scores = op.MatMul(query, op.Transpose(key, perm=[0, 1, 3, 2]))
        scores = op.Mul(scores, op.constant(self.scale, np.float32))
        scores = op.Reshape(scores, op.constant([0, heads, BLOCK_QUERIES, BLOCK_QUERIES]))
        later = np.triu(np.full((BLOCK_QUERIES, BLOCK_QUERIES), MASKED_SCORE, np.float32), 1)
        scores = op.Add(scores, op.constant(later, np.float32))
        scores = op.Reshape(scores, op.constant([0, self.shared.count, -1, BLOCK_QUERIES]))
        greatest = op.ReduceMax(scores, last, keepdims=1)
        weights = op.Exp(op.Sub(scores, greatest))
        return greatest, op.ReduceSum(weights, last, keepdims=1), op.MatMul(weights, value)

    def _add_before(self, op: Ops, query: ir.Value, greatest: ir.Value, count: ir.Value) -> ir.Value:
        """Attend to the sink and the keys before each block: (blocks, shared, queries, dim + 1)."""
        shared, width = self.shared.count, self.heads.dim + 1
        score = op.Mul(greatest, op.constant(1 / self.scale, np.float32))
        extended = op.Transpose(op.Concat(query, score, axis=3), perm=[0, 2, 1, 3])
        queries = op.Reshape(extended, op.constant([0, -1, shared * width]))
        keys, values = (self._extend(op, part) for part in (self.key, self.value))
        zero, axis = op.constant([0]), op.constant([1])

        def add_block(number: ir.Value) -> ir.Value:
            end = op.Add(op.Mul(op.Reshape(number, axis), op.constant([BLOCK_QUERIES])), axis)
            before = (op.Slice(part, zero, end, axis) for part in (keys, values))
            block = op.Gather(queries, op.Reshape(number, axis), axis=0)
            return self._attend(op, block, *before)

        blocks = op.stack_results(_scalar(op, count), add_block)
        split = op.Reshape(blocks, op.Concat(count, op.constant([-1, shared, width]), axis=0))
        return op.Transpose(split, perm=[0, 2, 1, 3])

    def _extend(self, op: Ops, part: ir.Value) -> ir.Value:
        """Add the sink, and its dimension, to keys or values: (1, 1 + positions, shared * (dim + 1))."""
        shared, width = self.shared.count, self.heads.dim + 1
        by_head = op.Reshape(part, op.constant([-1, shared, width - 1]))
        wider = op.Pad(by_head, op.constant([0, 0, 0, 0, 0, 1]))
        sink = np.zeros((1, shared, width), np.float32)
        sink[..., -1] = 1
        rows = op.Concat(op.constant(sink, np.float32), wider, axis=0)
        return op.Reshape(rows, op.constant([1, -1, shared * width]))

    def _attend(self, op: Ops, query: ir.Value, key: ir.Value, value: ir.Value) -> ir.Value:
        return op.add_runtime(
            FLASH_OPERATOR, query, key, value, num_heads=self.shared.count, scale=self.scale
        )


def _scalar(op: Ops, number: ir.Value) -> ir.Value:
    return op.Squeeze(number, op.constant([0]))
