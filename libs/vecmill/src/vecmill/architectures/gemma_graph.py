"""The graphs of Gemma, Gemma 2, Gemma 3 and T5Gemma, as transformers' models of these names compute them."""

from typing import ClassVar

import numpy as np
import onnx_ir as ir

from vecmill.architectures.decoder import DecoderConfig
from vecmill.architectures.decoder_graph import Decoder, DecoderInputs
from vecmill.graphs.batch_layout import Layout
from vecmill.graphs.encoder import EncoderGraph
from vecmill.graphs.ops import Ops
from vecmill.models.weights import StoredTensor, Weights


class Gemma(Decoder):
    """The graph of Gemma: word embeddings are scaled, and norms scale by one plus their weight."""

    def embed(self) -> ir.Value:
        """Add the word embeddings times the square root of the hidden size, (positions, hidden_size)."""
        scale = self.op.constant(np.float32(self.config.hidden_size**0.5), np.float32)
        return self.op.Mul(super().embed(), scale)

    def norm(self, x: ir.Value, name: str, width: int) -> ir.Value:
        """Add a root-mean-square norm over the last axis, of `width`, scaled by one plus the weight."""
        weight = self.weights.tensor(f"{name}.weight", (width,))
        scale = StoredTensor(f"1 + {weight.name}", weight.shape, lambda: weight.read() + np.float32(1))
        return self.rms_norm(x, self.add(scale), self.config.rms_norm_eps)


class Gemma3(Gemma):
    """The graph of Gemma 2 and 3: a norm before and after attention, and before and after the gated unit.

    The settings have what differs: norms on heads in Gemma 3, soft caps in Gemma 2.
    """

    norms_of_attention: ClassVar = ("input_layernorm", "post_attention_layernorm")

    def add_layer(self, x: ir.Value, name: str, inputs: DecoderInputs) -> ir.Value:
        """Add one layer, (positions, hidden_size)."""
        op, width = self.op, self.config.hidden_size
        before, after = (f"{name}.{norm}" for norm in self.norms_of_attention)
        attended = self.attend_by_groups(self.norm(x, before, width), name, inputs)
        x = op.Add(self.select(x, inputs), self.norm(attended, after, width))
        gated = self.gate(self.norm(x, f"{name}.pre_feedforward_layernorm", width), f"{name}.mlp")
        return op.Add(x, self.norm(gated, f"{name}.post_feedforward_layernorm", width))


class T5Gemma(Gemma3):
    """The graph of the encoder of T5Gemma, in the file of a whole model or of the encoder by itself."""

    prefix: ClassVar[str] = "encoder."
    norms_of_attention: ClassVar = ("pre_self_attn_layernorm", "post_self_attn_layernorm")

    # The heads of transformers' classes read the decoder, or are not compared with them.
    classify = EncoderGraph.classify
    classify_tokens = EncoderGraph.classify_tokens
    predict_tokens = EncoderGraph.predict_tokens
    predict_chosen = EncoderGraph.predict_chosen

    def __init__(self, op: Ops, layout: Layout, config: DecoderConfig, weights: Weights) -> None:
        super().__init__(op, layout, config, weights)
        if not self.weights.holds("norm.weight"):  # a language model prefixes all names
            self.weights = weights.with_prefix("model.encoder.")
