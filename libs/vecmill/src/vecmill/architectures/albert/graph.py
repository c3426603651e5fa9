"""The ALBERT encoder (Lan et al., 2019), as transformers' `AlbertModel` computes it."""

from typing import ClassVar

import onnx_ir as ir

from vecmill.architectures.albert.config import AlbertConfig
from vecmill.architectures.bert.graph import Bert
from vecmill.architectures.postnorm import LayerNames, SequenceHead, VocabularyHead


class Albert(Bert[AlbertConfig]):
    """The graph of ALBERT: BERT with projected embeddings and layers that share weights."""

    prefix = "albert."
    layer_names: ClassVar = LayerNames(
        query="attention.query",
        key="attention.key",
        value="attention.value",
        attended="attention.dense",
        attended_norm="attention.LayerNorm",
        inner="ffn",
        outer="ffn_output",
        outer_norm="full_layer_layer_norm",
    )
    sequence_head: ClassVar = SequenceHead("pooler", "tanh", "classifier")
    vocabulary_head: ClassVar = VocabularyHead(
        dense="predictions.dense",
        norm="predictions.LayerNorm",
        decoder="predictions.decoder",
        bias="predictions.bias",
    )

    def encode(self) -> ir.Value:
        """Add the encoder, as `EncoderGraph.encode` describes."""
        config, bias = self.config, self.attention_bias()
        x = self.embed()
        for index in range(config.num_hidden_layers):
            # The same floating-point division as in transformers.
            group = int(index / (config.num_hidden_layers / config.num_hidden_groups))
            for inner in range(config.inner_group_num):
                x = self.layer(x, f"encoder.albert_layer_groups.{group}.albert_layers.{inner}", bias)
        return x

    def embed(self) -> ir.Value:
        """Add BERT's embeddings, projected to the hidden size."""
        config = self.config
        return self.linear(
            super().embed(), "encoder.embedding_hidden_mapping_in", config.embedding_size, config.hidden_size
        )
