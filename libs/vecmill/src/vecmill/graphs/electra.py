"""The ELECTRA encoder (Clark et al., 2020), as transformers' `ElectraModel` computes it."""

from typing import ClassVar

import onnx_ir as ir

from vecmill.graphs.bert import Bert
from vecmill.graphs.postnorm import SequenceHead, VocabularyHead
from vecmill.models.electra import ElectraConfig


class Electra(Bert[ElectraConfig]):
    """BERT with embeddings of a width of their own."""

    prefix = "electra."
    sequence_head: ClassVar = SequenceHead("classifier.dense", "gelu", "classifier.out_proj")
    # The generator's: the discriminator, which most models are, has none.
    vocabulary_head: ClassVar = VocabularyHead(
        dense="generator_predictions.dense",
        norm="generator_predictions.LayerNorm",
        decoder="generator_lm_head",
        bias="generator_lm_head.bias",
        activation="gelu",
    )

    def embed(self) -> ir.Value:
        """BERT's embeddings, projected where they are not as wide as hidden states."""
        embedded = super().embed()
        narrow, wide = self.config.embedding_size, self.config.hidden_size
        return embedded if narrow == wide else self.linear(embedded, "embeddings_project", narrow, wide)
