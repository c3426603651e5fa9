"""The graph of EmbeddingGemma 2 for texts, as transformers' `EmbeddingGemma2TextModel` computes it."""

from typing import ClassVar

import numpy as np
import onnx_ir as ir

from vecmill.architectures.decoder_graph import Decoder, DecoderInputs, DecoderNames
from vecmill.architectures.embedding_gemma2 import ComposedGemma2Config, EmbeddingGemma2Config
from vecmill.graphs.encoder import EncoderGraph
from vecmill.graphs.ops import activate
from vecmill.graphs.rotary import select_heads
from vecmill.graphs.softmax_attention import Projection


class EmbeddingGemma2(Decoder):
    """The graph of EmbeddingGemma 2: norms before and after each part, and a signal for each layer."""

    config: EmbeddingGemma2Config
    names: ClassVar = DecoderNames(projection="embedding_projection")
    _words: ir.Value

    # transformers has no such heads.
    classify = EncoderGraph.classify
    classify_tokens = EncoderGraph.classify_tokens
    predict_tokens = EncoderGraph.predict_tokens
    predict_chosen = EncoderGraph.predict_chosen

    def embed(self) -> ir.Value:
        """Add the word embeddings times the square root of the hidden size, (positions, hidden_size)."""
        scale = self.op.constant(np.float32(self.config.hidden_size**0.5), np.float32)
        self._words = self.op.Mul(super().embed(), scale)
        return self._words

    def add_layer(self, x: ir.Value, name: str, inputs: DecoderInputs) -> ir.Value:
        """Add one layer, (positions, hidden_size), or with the rows of `inputs.last`."""
        op, width = self.op, self.config.hidden_size
        attended = self.attend_by_groups(self.norm(x, f"{name}.input_layernorm", width), name, inputs)
        x = op.Add(self.select(x, inputs), self.norm(attended, f"{name}.post_attention_layernorm", width))
        gated = self.gate(self.norm(x, f"{name}.pre_feedforward_layernorm", width), f"{name}.mlp")
        x = op.Add(x, self.norm(gated, f"{name}.post_feedforward_layernorm", width))
        signal = self._find_signal(self.select(self._words, inputs), int(name.split(".")[1]))
        x = op.Add(x, self._mix_signal(x, signal, f"{name}.ple_block"))
        return op.Mul(x, self.vector(f"{name}.layer_scalar", 1))

    def finish_value(self, value: Projection) -> Projection:
        """Return values with norms on the heads, which have no weights."""
        heads = select_heads(self.op, value)
        scale = self.op.constant(np.ones(value.heads.dim), np.float32)
        return Projection(self.rms_norm(heads, scale, self.config.rms_norm_eps), value.heads.selected())

    def _find_signal(self, words: ir.Value, layer: int) -> ir.Value:
        """Return the signal of a layer from scaled word embeddings: (n, signal_size)."""
        op, config = self.op, self.config
        size, width = config.signal_size, config.hidden_size
        rows = range(layer * size, (layer + 1) * size)
        name = "ple.per_layer_model_projection"
        signal = self.linear_part(words, name, width, len(config.layers) * size, rows, bias=False)
        signal = op.Mul(signal, op.constant(width**-0.5, np.float32))
        return self.norm(signal, "ple.per_layer_projection_norm", size)

    def _mix_signal(self, x: ir.Value, signal: ir.Value, name: str) -> ir.Value:
        """Return what the signal of a layer adds to `x`, (n, hidden_size)."""
        size, width = self.config.signal_size, self.config.hidden_size
        gate = self.linear(x, f"{name}.per_layer_input_gate", width, size, bias=False)
        gated = self.op.Mul(activate(self.op, gate, self.config.hidden_act), signal)
        mixed = self.linear(gated, f"{name}.per_layer_projection", size, width, bias=False)
        return self.norm(mixed, f"{name}.post_per_layer_input_norm", width)


class ComposedGemma2(EmbeddingGemma2):
    """The graph of EmbeddingGemma 2 as published, for texts alone (`EmbeddingGemma2Model`)."""

    prefix: ClassVar[str] = "language_model."
    config: ComposedGemma2Config

    def read_tokens(self) -> ir.Value:
        """Return the tokens; those that stand for images and sound become padding tokens, (positions,)."""
        op, tokens, padding = self.op, super().read_tokens(), self.config.pad_token_id
        assert padding is not None
        for place in self.config.places:
            is_place = op.Equal(tokens, op.constant(place))
            tokens = op.Where(is_place, op.constant(padding), tokens)
        return tokens
