"""The graphs of Gemma, Gemma 2 and Gemma 3, as transformers' text models of these names compute them."""

import numpy as np
import onnx_ir as ir

from vecmill.architectures.decoder_graph import Decoder, DecoderInputs
from vecmill.models.weights import StoredTensor


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

    def add_layer(self, x: ir.Value, name: str, inputs: DecoderInputs) -> ir.Value:
        """Add one layer, (positions, hidden_size)."""
        op, width = self.op, self.config.hidden_size
        attended = self.attend_by_groups(self.norm(x, f"{name}.input_layernorm", width), name, inputs)
        x = op.Add(self.select(x, inputs), self.norm(attended, f"{name}.post_attention_layernorm", width))
        gated = self.gate(self.norm(x, f"{name}.pre_feedforward_layernorm", width), f"{name}.mlp")
        return op.Add(x, self.norm(gated, f"{name}.post_feedforward_layernorm", width))
