"""The ELECTRA encoder (Clark et al., 2020), as transformers' `ElectraModel` computes it."""

from typing import ClassVar

import onnx_ir as ir

from vecmill.architectures.bert.graph import Bert
from vecmill.architectures.electra.config import ElectraConfig
from vecmill.architectures.postnorm import SequenceHead, VocabularyHead


class Electra(Bert[ElectraConfig]):
    """The graph of ELECTRA: BERT with embeddings of their own width."""

    prefix = "electra."
    sequence_head: ClassVar = SequenceHead("classifier.dense", "gelu", "classifier.out_proj")
    # The generator's head. The discriminator, which most models are, has none.
    vocabulary_head: ClassVar = VocabularyHead(
        dense="generator_predictions.dense",
        norm="generator_predictions.LayerNorm",
        decoder="generator_lm_head",
        bias="generator_lm_head.bias",
        activation="gelu",
    )

    def embed(self) -> ir.Value:
        """Add BERT's embeddings, projected to the hidden size if they are narrower."""
        embedded = super().embed()
        narrow, wide = self.config.embedding_size, self.config.hidden_size
        return embedded if narrow == wide else self.linear(embedded, "embeddings_project", narrow, wide)
