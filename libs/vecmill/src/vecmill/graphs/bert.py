"""The BERT encoder (Devlin et al., 2018), as transformers' `BertModel` computes it."""

from typing import ClassVar

import onnx_ir as ir

from vecmill.graphs.postnorm import BertLike, LayerNames, PostNorm, SequenceHead, VocabularyHead


class Bert(PostNorm[BertLike]):
    """Post-norm layers over word, type and absolute position embeddings."""

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
        """The sum of three embeddings, normalised: (positions, embedding_size)."""
        config, width = self.config, self.config.embedding_size
        words = self.look_up(
            "embeddings.word_embeddings.weight", config.vocab_size, self.layout.token_ids, width=width
        )
        types = self.look_up(
            "embeddings.token_type_embeddings.weight", config.type_vocab_size, self.types(), width=width
        )
        places = self.look_up(
            "embeddings.position_embeddings.weight",
            config.max_position_embeddings,
            self.positions(),
            width=width,
        )
        embedded = self.op.Add(self.op.Add(words, types), places)
        return self.layer_norm(embedded, "embeddings.LayerNorm", config.layer_norm_eps, width=width)

    def positions(self) -> ir.Value:
        """The row of the position embeddings for each token, (positions,)."""
        return self.layout.token_positions

    def types(self) -> ir.Value:
        """The row of the type embeddings for each token, (positions,)."""
        if self.config.type_vocab_size > 1:
            return self.layout.token_type_ids
        # Where there is one type, tokenizers may number the second text of a pair all the same.
        return self.op.Mul(self.layout.token_type_ids, self.op.constant(0))
