"""The DistilBERT encoder (Sanh et al., 2019), as transformers' `DistilBertModel` computes it."""

from typing import ClassVar

import onnx_ir as ir

from vecmill.graphs.postnorm import LayerNames, PostNorm, SequenceHead, VocabularyHead
from vecmill.models.distilbert import DistilBertConfig


class DistilBert(PostNorm[DistilBertConfig]):
    """BERT without token types. Positions that are sinusoids are stored as a table all the same."""

    prefix = "distilbert."
    layer_names: ClassVar = LayerNames(
        query="attention.q_lin",
        key="attention.k_lin",
        value="attention.v_lin",
        attended="attention.out_lin",
        attended_norm="sa_layer_norm",
        inner="ffn.lin1",
        outer="ffn.lin2",
        outer_norm="output_layer_norm",
    )
    sequence_head: ClassVar = SequenceHead("pre_classifier", "relu", "classifier")
    vocabulary_head: ClassVar = VocabularyHead(
        dense="vocab_transform",
        norm="vocab_layer_norm",
        decoder="vocab_projector",
        bias="vocab_projector.bias",
    )

    def layer_name(self, index: int) -> str:
        """As `PostNorm.layer_name`."""
        return f"transformer.layer.{index}"

    def embed(self) -> ir.Value:
        """Words and positions, normalised: (positions, hidden_size)."""
        config, layout = self.config, self.layout
        words = self.look_up("embeddings.word_embeddings.weight", config.vocab_size, layout.token_ids)
        places = self.look_up(
            "embeddings.position_embeddings.weight", config.max_position_embeddings, layout.token_positions
        )
        return self.norm(self.op.Add(words, places), "embeddings.LayerNorm")
