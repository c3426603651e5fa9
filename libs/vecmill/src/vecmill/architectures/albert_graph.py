"""The graph of ALBERT (Lan et al., 2019): BERT whose layers share their weights."""

from typing import ClassVar

import onnx_ir as ir

from vecmill.architectures.bert import (
    AlbertConfig,
)
from vecmill.architectures.bert_graph import Bert, LayerNames, SequenceHead, VocabularyHead


class Albert(Bert[AlbertConfig]):
    """The graph of ALBERT (Lan et al., 2019): BERT with projected embeddings and shared layers."""

    computes_last_tokens: ClassVar = False  # all layers share one product for queries, keys and values

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
    )

    def encode(self) -> ir.Value:
        """Add the encoder, as `EncoderGraph.encode` describes."""
        config, bias = self.config, self.attention_bias()
        x = self.embed()
        self.layers = [x]
        for index in range(config.num_hidden_layers):
            # The same floating-point division as in transformers.
            group = int(index / (config.num_hidden_layers / config.num_hidden_groups))
            for inner in range(config.inner_group_num):
                x = self.layer(x, f"encoder.albert_layer_groups.{group}.albert_layers.{inner}", bias)
                self.layers.append(x)
        return x

    def embed(self) -> ir.Value:
        """Add BERT's embeddings, projected to the hidden size."""
        config = self.config
        return self.linear(
            super().embed(), "encoder.embedding_hidden_mapping_in", config.embedding_size, config.hidden_size
        )
