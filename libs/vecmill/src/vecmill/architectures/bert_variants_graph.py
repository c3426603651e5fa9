"""The graphs of ERNIE, Data2Vec for text, RemBERT, and of encoders that normalise before each sublayer.

The latter are RoBERTa-PreLayerNorm, XLM-RoBERTa-XL and Megatron-BERT. Each graph computes what the class of
its name in transformers computes.
"""

from dataclasses import replace
from typing import ClassVar

import onnx_ir as ir

from vecmill.architectures.bert import BertConfig, RobertaConfig
from vecmill.architectures.bert_graph import Bert, BertLike, Roberta, VocabularyHead
from vecmill.architectures.bert_variants import ErnieConfig, RemBertConfig
from vecmill.graphs.last_tokens import LastTokens
from vecmill.graphs.ops import activate
from vecmill.graphs.softmax_attention import AttentionBias


class Ernie(Bert[ErnieConfig]):
    """The graph of ERNIE (Sun et al., 2019): BERT with an embedding of the task."""

    prefix = "ernie."

    def add_embeddings(self) -> ir.Value:
        """Add word, type, position and task embeddings, summed: (positions, hidden_size)."""
        embedded, config = super().add_embeddings(), self.config
        if not config.use_task_id:
            return embedded
        name, shape = (
            "embeddings.task_type_embeddings.weight",
            (config.task_type_vocab_size, config.hidden_size),
        )
        return self.op.Add(embedded, self.add(self.weights.part(name, shape, 0, 1)))


class Data2VecText(Roberta[RobertaConfig]):
    """The graph of Data2Vec for text (Baevski et al., 2022): RoBERTa under other names."""

    prefix = "data2vec_text."


class RemBert(Bert[RemBertConfig]):
    """The graph of RemBERT (Chung et al., 2021): BERT with embeddings of their own widths at both ends."""

    prefix = "rembert."
    vocabulary_head: ClassVar = VocabularyHead(
        dense="cls.predictions.dense",
        norm="cls.predictions.LayerNorm",
    )

    def embed(self) -> ir.Value:
        """Add BERT's embeddings, projected to the hidden size."""
        narrow, wide = self.config.embedding_size, self.config.hidden_size
        return self.linear(super().embed(), "encoder.embedding_hidden_mapping_in", narrow, wide)


class PreNorm(Bert[BertLike]):
    """A stack of layers that normalise the inputs of attention and of the linear layers.

    `layer_names.attended_norm` and `outer_norm` are the norms before the two. `final_norm` follows the last
    layer.
    """

    final_norm: ClassVar[str]

    def encode(self) -> ir.Value:
        """Add the encoder, as `EncoderGraph.encode` describes."""
        x = self.norm(super().encode(), self.final_norm)
        self.layers[-1] = x
        return x

    def layer(self, x: ir.Value, name: str, bias: AttentionBias, last: LastTokens | None = None) -> ir.Value:
        """Add one layer: attention and two linear layers, each after a norm and with a residual."""
        op, config, names = self.op, self.config, self.layer_names
        hidden, wide = config.hidden_size, config.intermediate_size
        attended = self.attend_by(self.norm(x, f"{name}.{names.attended_norm}"), name, bias, last)
        x = x if last is None else last.select(op, x)
        x = op.Add(x, self.linear(attended, f"{name}.{names.attended}", hidden, hidden))
        inner = self.linear(self.norm(x, f"{name}.{names.outer_norm}"), f"{name}.{names.inner}", hidden, wide)
        inner = activate(op, inner, config.hidden_act)
        return op.Add(x, self.linear(inner, f"{name}.{names.outer}", wide, hidden))


class MegatronBert(PreNorm[BertConfig]):
    """The graph of Megatron-BERT (Shoeybi et al., 2019): embeddings are not normalised."""

    layer_names: ClassVar = replace(Bert.layer_names, attended_norm="attention.ln", outer_norm="ln")
    final_norm = "encoder.ln"

    def embed(self) -> ir.Value:
        """Add the embeddings, (positions, hidden_size)."""
        return self.add_embeddings()


class RobertaPreLayerNorm(PreNorm[RobertaConfig]):
    """The graph of RoBERTa-PreLayerNorm: RoBERTa with norms before attention and the linear layers."""

    prefix = "roberta_prelayernorm."
    sequence_head: ClassVar = Roberta.sequence_head
    vocabulary_head: ClassVar = Roberta.vocabulary_head
    layer_names: ClassVar = replace(
        Bert.layer_names,
        attended_norm="attention.LayerNorm",
        outer_norm="intermediate.LayerNorm",
        inner="intermediate.dense",
    )
    final_norm = "LayerNorm"

    def positions(self) -> ir.Value:
        """Return each token's index in the position embeddings, (positions,)."""
        return self.positions_after(self.config.pad_token_id)


class XlmRobertaXl(RobertaPreLayerNorm):
    """The graph of XLM-RoBERTa-XL (Goyal et al., 2021): embeddings are not normalised."""

    prefix = "roberta."
    layer_names: ClassVar = replace(
        Bert.layer_names, attended_norm="attention.self_attn_layer_norm", outer_norm="LayerNorm"
    )
    final_norm = "encoder.LayerNorm"

    def embed(self) -> ir.Value:
        """Add the embeddings, (positions, hidden_size)."""
        return self.add_embeddings()
