"""The graph of layerwise MiniCPM rerankers: a Llama with multipliers, cut after one of its layers."""

import onnx_ir as ir

from vecmill.architectures.decoder_graph import Decoder
from vecmill.architectures.minicpm import MiniCpmConfig


class MiniCpm(Decoder):
    """The graph of a layerwise MiniCPM reranker: the final norm and a head after the last computed layer."""

    config: MiniCpmConfig

    def classified_slots(self) -> ir.Value | None:
        """Return the last slot of each text."""
        return self.op.Sub(self.layout.lengths, self.op.constant([1]))

    def classify(self, hidden: ir.Value, labels: int) -> ir.Value:
        """Add the head of the last computed layer. Return its score at the last token, (texts, labels)."""
        op, layout = self.op, self.layout
        last = layout.read_at(hidden, lambda: op.Sub(layout.lengths, op.constant([1])))
        name = f"lm_head.{self.config.answering_head}.linear_head"
        return self.linear(last, name, self.config.hidden_size, labels, bias=False)
