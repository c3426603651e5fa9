"""The RoBERTa encoder (Liu et al., 2019), as transformers' `RobertaModel` computes it.

`XLMRobertaModel` and `CamembertModel` compute the same.
"""

from typing import ClassVar

import onnx_ir as ir

from vecmill.architectures.bert.graph import Bert
from vecmill.architectures.postnorm import SequenceHead, VocabularyHead
from vecmill.architectures.roberta.config import RobertaConfig
from vecmill.graphs.positions import positions_after_padding

ROBERTA_SEQUENCE_HEAD = SequenceHead("classifier.dense", "tanh", "classifier.out_proj")
ROBERTA_VOCABULARY_HEAD = VocabularyHead(
    dense="lm_head.dense",
    norm="lm_head.layer_norm",
    decoder="lm_head.decoder",
    bias="lm_head.bias",
    activation="gelu",
)


class Roberta(Bert[RobertaConfig]):
    """The graph of RoBERTa: BERT with positions counted from the padding token's id."""

    prefix = "roberta."
    sequence_head: ClassVar = ROBERTA_SEQUENCE_HEAD
    vocabulary_head: ClassVar = ROBERTA_VOCABULARY_HEAD

    def positions(self) -> ir.Value:
        """Return each token's index in the position embeddings, (positions,)."""
        return positions_after_padding(self.op, self.layout, self.config.pad_token_id)
