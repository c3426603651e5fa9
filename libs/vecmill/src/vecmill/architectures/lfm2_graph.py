"""The graph of LFM2, as transformers' `Lfm2Model` computes it.

A layer with a convolution projects each token to three parts. The product of two of them is convolved over
neighbouring tokens of the same text, each dimension by itself, and then gated by the third.
"""

import functools
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from vecmill.architectures.decoder_graph import Decoder, DecoderInputs, DecoderNames
from vecmill.architectures.lfm2 import Lfm2Config
from vecmill.graphs.batch_layout import Neighbours
from vecmill.graphs.ops import activate
from vecmill.models.weights import StoredTensor


class Lfm2(Decoder):
    """The graph of LFM2, with convolutions in either direction."""

    config: Lfm2Config
    names: ClassVar = DecoderNames("embedding_norm", "q_layernorm", "k_layernorm", "out_proj")
    _neighbours: tuple[Neighbours | None, ...] = ()
    _is_seen: ir.Value | None = None

    def encode(self) -> ir.Value:
        """Add the encoder, as `EncoderGraph.encode` describes."""
        layout, convolutions = self.layout, self.config.convolutions
        self._neighbours = tuple(
            layout.find_neighbours(distance) if distance else None for distance in convolutions.distances
        )
        # transformers sets tokens that no token attends to to zeros before each convolution. The code that
        # LFM2.5-ColBERT came with, which looks ahead, does not.
        if layout.seen_lengths is not layout.lengths and not convolutions.centred:
            self._is_seen = layout.mark_seen()
        return super().encode()

    def add_layer(self, x: ir.Value, name: str, inputs: DecoderInputs) -> ir.Value:
        """Add one layer, (positions, hidden_size), or with the rows of `inputs.last`."""
        op, width = self.op, self.config.hidden_size
        normed = self.norm(x, f"{name}.operator_norm", width)
        if int(name.split(".")[1]) in self.config.convolutions.layers:
            changed = self._convolve(normed, f"{name}.conv", inputs)
        else:
            changed = self.attend_by_groups(normed, name, inputs)
        x = op.Add(changed, self.select(x, inputs))
        return op.Add(x, self.gate(self.norm(x, f"{name}.ffn_norm", width), f"{name}.feed_forward"))

    def gate(self, x: ir.Value, name: str) -> ir.Value:
        """Add the gated linear unit, (positions, hidden_size)."""
        op, hidden, wide = self.op, self.config.hidden_size, self.config.intermediate_size
        gate = activate(op, self.linear(x, f"{name}.w1", hidden, wide, bias=False), self.config.hidden_act)
        value = self.linear(x, f"{name}.w3", hidden, wide, bias=False)
        return self.linear(op.Mul(gate, value), f"{name}.w2", wide, hidden, bias=False)

    def _convolve(self, x: ir.Value, name: str, inputs: DecoderInputs) -> ir.Value:
        """Add a gated convolution, (positions, hidden_size), or with the rows of `inputs.last`."""
        op, width, bias = self.op, self.config.hidden_size, self.config.convolutions.bias
        if self._is_seen is not None:
            x = op.Where(self._is_seen, x, op.constant(0, np.float32))
        projected = self.linear(x, f"{name}.in_proj", width, 3 * width, bias=bias)
        before, after, value = (
            op.slice(projected, part * width, (part + 1) * width, axis=1) for part in range(3)
        )
        convolved = self._add_taps(op.Mul(before, value), f"{name}.conv")
        gated = self.select(op.Mul(after, convolved), inputs)
        return self.linear(gated, f"{name}.out_proj", width, width, bias=bias)

    def _add_taps(self, x: ir.Value, name: str) -> ir.Value:
        """Return the convolution of `x` over the tokens of each text, (positions, hidden_size)."""
        op, width, taps = self.op, self.config.hidden_size, len(self._neighbours)
        kernel = self.weights.tensor(f"{name}.weight", (width, 1, taps))
        parts = [
            op.Mul(x if its is None else its.read(op, x), self.add(_take_tap(kernel, tap)))
            for tap, its in enumerate(self._neighbours)
        ]
        total = functools.reduce(op.Add, parts)
        return op.Add(total, self.vector(f"{name}.bias", width)) if self.config.convolutions.bias else total


def _take_tap(kernel: StoredTensor, tap: int) -> StoredTensor:
    """Return the weights of one tap of a kernel, (hidden_size,)."""
    return StoredTensor(
        f"{kernel.name}[:, 0, {tap}]",
        kernel.shape[:1],
        lambda: np.ascontiguousarray(kernel.read()[:, 0, tap]),
    )
