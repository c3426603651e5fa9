"""Mixtures of experts: of several networks, each token passes through the few that a router chooses for it.

The output of a token is the sum of the outputs of its experts, each multiplied by the share that the router
gave to it. It depends on no other token.

Where shapes may depend on data, each expert computes its own tokens alone. A token with two experts has two
slots:

    slots            0 1 | 2 3 | 4 5        tokens 0, 1 and 2
    experts          0 2 | 2 1 | 0 1
    in their order   0 4 | 3 5 | 1 2        the slots of expert 0, of expert 1, of expert 2

The first token goes through every expert as well, in a spare slot that is not read: ONNX Runtime does not
reduce over no rows, which the products in int8 ask for.

Runtimes that compile for fixed shapes compute every expert for every token, with a share of 0 for experts
that are not chosen.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from vecmill.graphs.batch_layout import Layout
from vecmill.graphs.ops import Ops

_TAKEN = -1.0  # less than any share


@dataclass(frozen=True, slots=True)
class Chosen:
    """An expert of each token, `expert` (positions, 1), int64, and its `share` (positions, 1), float32."""

    expert: ir.Value
    share: ir.Value


@dataclass(frozen=True, slots=True)
class Experts:
    """The `count` experts of a layer.

    `compute` adds one of them, given by its number: (n, width) to (n, width). It is called once for each.
    """

    count: int
    width: int
    compute: Callable[[int, ir.Value], ir.Value]


def choose_experts(op: Ops, shares: ir.Value, count: int, experts: int) -> list[Chosen]:
    """Return the `count` experts with the largest `shares` (positions, experts), none of which is below 0.

    Of equal shares the first counts as larger.
    """
    numbers = op.constant([list(range(experts))])
    chosen = []
    for _ in range(count):
        expert = op.ArgMax(shares, axis=1, keepdims=1)
        chosen.append(Chosen(expert, op.ReduceMax(shares, op.constant([1]), keepdims=1)))
        shares = op.Where(op.Equal(numbers, expert), op.constant(_TAKEN, np.float32), shares)
    return chosen


def normalise_shares(op: Ops, chosen: Sequence[Chosen]) -> list[Chosen]:
    """Return the `chosen` experts with shares that are scaled to a sum of 1."""
    total = functools.reduce(op.Add, (one.share for one in chosen))
    return [replace(one, share=op.Div(one.share, total)) for one in chosen]


def mix_experts(op: Ops, layout: Layout, x: ir.Value, experts: Experts, chosen: Sequence[Chosen]) -> ir.Value:
    """Return the sum of the outputs of the `chosen` experts by their shares: (positions, width), like `x`."""
    if layout.has_fixed_shapes:
        return _compute_all(op, x, experts, chosen)
    return _compute_chosen(op, x, experts, chosen)


def _compute_all(op: Ops, x: ir.Value, experts: Experts, chosen: Sequence[Chosen]) -> ir.Value:
    outputs = (
        op.Mul(experts.compute(number, x), _share_of(op, chosen, number)) for number in range(experts.count)
    )
    return functools.reduce(op.Add, outputs)


def _share_of(op: Ops, chosen: Sequence[Chosen], number: int) -> ir.Value:
    """Return the share of expert `number`, 0 where it is not chosen: (positions, 1)."""
    zero = op.constant(0, np.float32)
    shares = (op.Where(op.Equal(one.expert, op.constant(number)), one.share, zero) for one in chosen)
    return functools.reduce(op.Add, shares)


def _compute_chosen(op: Ops, x: ir.Value, experts: Experts, chosen: Sequence[Chosen]) -> ir.Value:
    expert_of_slot = op.Reshape(op.Concat(*(one.expert for one in chosen), axis=1), op.constant([-1]))
    spare = op.Unsqueeze(op.Size(expert_of_slot), op.constant([0]))  # the slot after the last
    slots = op.Range(op.constant(0), op.Size(expert_of_slot), op.constant(1))
    order, outputs = [], []
    for number in range(experts.count):
        own = op.Compress(slots, op.Equal(expert_of_slot, op.constant(number)))
        tokens = op.Div(own, op.constant(len(chosen)))
        order += [spare, own]
        outputs.append(experts.compute(number, op.Gather(x, op.Concat(op.constant([0]), tokens, axis=0))))
    by_slot = op.Gather(op.Concat(*outputs, axis=0), _invert(op, slots, spare, op.Concat(*order, axis=0)))
    by_token = op.Reshape(by_slot, op.constant([-1, len(chosen), experts.width]))
    shares = op.Unsqueeze(op.Concat(*(one.share for one in chosen), axis=1), op.constant([2]))
    return op.ReduceSum(op.Mul(by_token, shares), op.constant([1]), keepdims=0)


def _invert(op: Ops, slots: ir.Value, spare: ir.Value, order: ir.Value) -> ir.Value:
    """Return the place of each of `slots` in `order`, which also has the slot `spare`, (slots,)."""
    places = op.Range(op.constant(0), op.Size(order), op.constant(1))
    found = op.ScatterElements(op.Concat(slots, spare, axis=0), order, places, axis=0)
    return op.Slice(found, op.constant([0]), op.constant([-1]))
