"""The DistilBERT encoder (Sanh et al., 2019), as transformers' `DistilBertModel` computes it."""

from typing import ClassVar

from vecmill.architectures.distilbert.config import DistilBertConfig
from vecmill.architectures.postnorm import LayerNames, PostNorm, SequenceHead, VocabularyHead


class DistilBert(PostNorm[DistilBertConfig]):
    """The graph of DistilBERT: BERT without token types. Sinusoidal positions are stored as a table."""

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
        """Return the prefix of a layer's tensors."""
        return f"transformer.layer.{index}"
