"""The BERT encoder (Devlin et al., 2018), as transformers' `BertModel` computes it."""

from typing import ClassVar

import onnx_ir as ir

from vecmill.architectures.postnorm import BertLike, LayerNames, PostNorm, SequenceHead, VocabularyHead


class Bert(PostNorm[BertLike]):
    """The graph of BERT: post-norm layers over word, type and absolute position embeddings."""

    prefix = "bert."
    layer_names: ClassVar = LayerNames(
        query="attention.self.query",
        key="attention.self.key",
        value="attention.self.value",
        attended="attention.output.dense",
        attended_norm="attention.output.LayerNorm",
        inner="intermediate.dense",
        outer="output.dense",
        outer_norm="output.LayerNorm",
    )
    sequence_head: ClassVar = SequenceHead("pooler.dense", "tanh", "classifier")
    vocabulary_head: ClassVar = VocabularyHead(
        dense="cls.predictions.transform.dense",
        norm="cls.predictions.transform.LayerNorm",
        decoder="cls.predictions.decoder",
        bias="cls.predictions.bias",
    )

    def embed(self) -> ir.Value:
        """Add word, type and position embeddings, summed and normalised: (positions, embedding_size)."""
        config, width = self.config, self.config.embedding_size
        words = self.look_up(
            "embeddings.word_embeddings.weight", config.vocab_size, self.layout.token_ids, width=width
        )
        types = self.look_up(
            "embeddings.token_type_embeddings.weight", config.type_vocab_size, self.types(), width=width
        )
        positions = self.look_up(
            "embeddings.position_embeddings.weight",
            config.max_position_embeddings,
            self.positions(),
            width=width,
        )
        embedded = self.op.Add(self.op.Add(words, types), positions)
        return self.layer_norm(embedded, "embeddings.LayerNorm", config.layer_norm_eps, width=width)

    def types(self) -> ir.Value:
        """Return each token's index in the type embeddings, (positions,)."""
        if self.config.type_vocab_size > 1:
            return self.layout.token_type_ids
        # Tokenizers may give the second text of a pair type 1 although the model has one type.
        return self.op.Mul(self.layout.token_type_ids, self.op.constant(0))
