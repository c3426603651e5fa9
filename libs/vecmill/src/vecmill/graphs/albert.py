"""The ALBERT encoder (Lan et al., 2019), as transformers' `AlbertModel` computes it."""

from typing import ClassVar

import onnx_ir as ir

from vecmill.graphs.bert import Bert
from vecmill.graphs.postnorm import LayerNames, SequenceHead, VocabularyHead
from vecmill.models.albert import AlbertConfig


class Albert(Bert[AlbertConfig]):
    """BERT with projected embeddings; layers of one group share one set of weights."""

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
        """As `Family.encode`."""
        config, bias = self.config, self.attention_bias()
        x = self.embed()
        for index in range(config.num_hidden_layers):
            # transformers divides so, in floating point.
            group = int(index / (config.num_hidden_layers / config.num_hidden_groups))
            for inner in range(config.inner_group_num):
                x = self.layer(x, f"encoder.albert_layer_groups.{group}.albert_layers.{inner}", bias)
        return x

    def embed(self) -> ir.Value:
        """BERT's embeddings, projected to the hidden size whatever their width."""
        config = self.config
        return self.linear(
            super().embed(), "encoder.embedding_hidden_mapping_in", config.embedding_size, config.hidden_size
        )
