"""The MPNet encoder (Song et al., 2020), as transformers' `MPNetModel` computes it."""

from typing import ClassVar

import onnx_ir as ir

from vecmill.graphs.distances import distance_bias, distance_buckets
from vecmill.graphs.positions import positions_after_padding
from vecmill.graphs.postnorm import LayerNames, PostNorm
from vecmill.graphs.roberta import ROBERTA_SEQUENCE_HEAD, ROBERTA_VOCABULARY_HEAD
from vecmill.models.mpnet import BUCKETS, PADDING, MPNetConfig

_FARTHEST = 128  # beyond, all distances are alike


class MPNet(PostNorm[MPNetConfig]):
    """Word and position embeddings, and a bias for the distance of a key from its query."""

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

    def embed(self) -> ir.Value:
        """Words and positions, normalised: (positions, hidden_size)."""
        config = self.config
        words = self.look_up("embeddings.word_embeddings.weight", config.vocab_size, self.layout.token_ids)
        places = self.look_up(
            "embeddings.position_embeddings.weight",
            config.max_position_embeddings,
            positions_after_padding(self.op, self.layout, PADDING),
        )
        return self.norm(self.op.Add(words, places), "embeddings.LayerNorm")

    def attention_bias(self) -> ir.Value:
        """The mask and one bias for each head and bucket of distances: (texts, heads, longest, longest)."""
        op, config = self.op, self.config
        biases = self.look_up(
            "encoder.relative_attention_bias.weight",
            config.relative_attention_num_buckets,
            op.constant(distance_buckets(BUCKETS, _FARTHEST)),
            width=config.num_attention_heads,
        )
        return op.Add(distance_bias(op, self.layout, biases, _FARTHEST), self.layout.key_bias)
