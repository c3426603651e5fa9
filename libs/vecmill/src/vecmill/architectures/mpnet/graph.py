"""The MPNet encoder (Song et al., 2020), as transformers' `MPNetModel` computes it."""

from typing import ClassVar

import onnx_ir as ir

from vecmill.architectures.mpnet.config import BUCKETS, PADDING, MPNetConfig
from vecmill.architectures.postnorm import LayerNames, PostNorm
from vecmill.architectures.roberta.graph import ROBERTA_SEQUENCE_HEAD, ROBERTA_VOCABULARY_HEAD
from vecmill.graphs.distances import DistanceBiases, distance_buckets
from vecmill.graphs.positions import positions_after_padding
from vecmill.graphs.softmax_attention import AttentionBias

_FARTHEST = 128  # larger distances share one bucket


class MPNet(PostNorm[MPNetConfig]):
    """The graph of MPNet: word and position embeddings, and an attention bias by distance."""

    prefix = "mpnet."
    layer_names: ClassVar = LayerNames(
        query="attention.attn.q",
        key="attention.attn.k",
        value="attention.attn.v",
        attended="attention.attn.o",
        attended_norm="attention.LayerNorm",
        inner="intermediate.dense",
        outer="output.dense",
        outer_norm="output.LayerNorm",
    )
    sequence_head: ClassVar = ROBERTA_SEQUENCE_HEAD
    vocabulary_head: ClassVar = ROBERTA_VOCABULARY_HEAD

    def positions(self) -> ir.Value:
        """Return each token's index in the position embeddings, (positions,)."""
        return positions_after_padding(self.op, self.layout, PADDING)

    def attention_bias(self) -> AttentionBias:
        """Return the bias of attention scores: one for each head and distance."""
        op, config = self.op, self.config
        biases = self.look_up(
            "encoder.relative_attention_bias.weight",
            config.relative_attention_num_buckets,
            op.constant(distance_buckets(BUCKETS, _FARTHEST)),
            width=config.num_attention_heads,
        )
        return AttentionBias.of(op, self.layout, distances=DistanceBiases(biases, _FARTHEST))
