"""The graphs of BERT (Devlin et al., 2018) and of the encoders that differ from it in details.

They normalise after each residual, and differ in embeddings, attention biases and the names of tensors. A
subclass of `PostNorm` defines the names as `LayerNames`, `SequenceHead` and `VocabularyHead`, and overrides
methods for the other differences:

    embed           the input of the first layer, (positions, hidden_size)
    positions       the index of each token in the position embeddings
    attention_bias  the mask and other biases of attention scores
    layer_name      the prefix of a layer's tensors; layers may share tensors

Each graph computes what the class of its name in transformers computes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import onnx_ir as ir

from vecmill.architectures.bert import (
    MPNET_BUCKETS,
    MPNET_PADDING,
    BertConfig,
    DistilBertConfig,
    ElectraConfig,
    MPNetConfig,
    RobertaConfig,
)
from vecmill.graphs.distances import DistanceBiases, distance_buckets
from vecmill.graphs.encoder import EncoderGraph
from vecmill.graphs.last_tokens import LastTokens
from vecmill.graphs.ops import activate
from vecmill.graphs.softmax_attention import AttentionBias, Projection

_MPNET_FARTHEST = 128  # larger distances share one bucket

BertLike = TypeVar("BertLike", bound=BertConfig)
RobertaLike = TypeVar("RobertaLike", bound=RobertaConfig)


@dataclass(frozen=True, slots=True)
class LayerNames:
    """The names of one layer's tensors, after the layer's prefix."""

    query: str
    key: str
    value: str
    attended: str
    attended_norm: str
    inner: str
    outer: str
    outer_norm: str


@dataclass(frozen=True, slots=True)
class SequenceHead:
    """A sequence classification head: `dense`, `activation` and `output`, applied to the first token."""

    dense: str
    activation: str
    output: str


@dataclass(frozen=True, slots=True)
class VocabularyHead:
    """A language model's head: `dense`, `activation`, `norm` and the settings' `decoder`, for each token.

    `activation` is by default the encoder's.
    """

    dense: str
    norm: str
    activation: str | None = None


class PostNorm(EncoderGraph[BertLike]):
    """A stack of post-norm layers over embeddings. Subclasses define the names of tensors."""

    computes_last_tokens: ClassVar = True
    layer_names: ClassVar[LayerNames]
    sequence_head: ClassVar[SequenceHead]
    vocabulary_head: ClassVar[VocabularyHead]

    def embed(self) -> ir.Value:
        """Add word and position embeddings, normalised: (positions, hidden_size)."""
        config, table = self.config, "embeddings.position_embeddings.weight"
        words = self.look_up("embeddings.word_embeddings.weight", config.vocab_size, self.layout.token_ids)
        positions = self.look_up(table, config.max_position_embeddings, self.positions())
        return self.norm(self.op.Add(words, positions), "embeddings.LayerNorm")

    def positions(self) -> ir.Value:
        """Return each token's index in the position embeddings, (positions,)."""
        return self.layout.token_positions

    def positions_after(self, padding: int) -> ir.Value:
        """Return the positions of transformers' `create_position_ids_from_input_ids`, (positions,).

        The first position is `padding` + 1. A padding token inside a text has position `padding` and is not
        counted.
        """
        op, layout = self.op, self.layout
        counted = op.Cast(op.Not(op.Equal(layout.token_ids, op.constant(padding))), to=ir.DataType.INT64)
        by_text = layout.by_text(op.Unsqueeze(counted, op.constant([1])))
        sums = op.Unsqueeze(op.CumSum(by_text, op.constant(1)), op.constant([1]))
        count = op.Squeeze(layout.merge_heads(sums, width=1), op.constant([1]))
        return op.Add(op.Mul(count, counted), op.constant(padding))

    def attention_bias(self) -> AttentionBias:
        """Return the bias of attention scores."""
        return AttentionBias.of(self.op, self.layout)

    def layer_name(self, index: int) -> str:
        """Return the prefix of the tensors of layer `index`."""
        return f"encoder.layer.{index}"

    def encode(self) -> ir.Value:
        """Add the encoder, as `EncoderGraph.encode` describes."""
        bias = self.attention_bias()
        x = self.embed()
        self.layers = [x]
        final = self.config.num_hidden_layers - 1
        for index in range(self.config.num_hidden_layers):
            last = self.layout.last_tokens if index == final else None
            x = self.layer(x, self.layer_name(index), bias, last)
            self.layers.append(x)
        return x

    def classified_slots(self) -> ir.Value | None:
        """Return the first slot of each text."""
        return self.first_slots()

    def classify(self, hidden: ir.Value, labels: int) -> ir.Value:
        """Add the head, as `EncoderGraph.classify` describes."""
        return self.classify_by(self.sequence_head, hidden, labels)

    def classify_by(self, head: SequenceHead, hidden: ir.Value, labels: int) -> ir.Value:
        """Add `head`. Return logits, (texts, labels)."""
        width = self.config.hidden_size
        dense = self.linear(self.first_tokens(hidden), head.dense, width, width)
        return self.linear(activate(self.op, dense, head.activation), head.output, width, labels)

    def classify_tokens(self, hidden: ir.Value, labels: int) -> ir.Value:
        """Add the head, as `EncoderGraph.classify_tokens` describes."""
        return self.linear(hidden, "classifier", self.config.hidden_size, labels)

    def predict_tokens(self, hidden: ir.Value) -> ir.Value:
        """Add the head, as `EncoderGraph.predict_tokens` describes."""
        return next(self.predict_parts(hidden, self.config.vocab_size))

    def predict_parts(self, hidden: ir.Value, columns: int) -> Iterator[ir.Value]:
        """Add the head, as `EncoderGraph.predict_parts` describes."""
        head, config, width = self.vocabulary_head, self.config, self.config.vocabulary_width
        x = self.linear(hidden, head.dense, config.hidden_size, width)
        x = activate(self.op, x, head.activation or config.hidden_act)
        x = self.layer_norm(x, head.norm, config.layer_norm_eps, width=width)
        weight, bias = f"{config.decoder}.weight", f"{config.decoder}.bias"
        return self.linear_parts(x, weight, bias, width, config.vocab_size, columns)

    def layer(self, x: ir.Value, name: str, bias: AttentionBias, last: LastTokens | None = None) -> ir.Value:
        """Add one layer: attention and two linear layers, each with a residual and a norm.

        The last layer returns the rows of `last`, if there are any.
        """
        op, config, names = self.op, self.config, self.layer_names
        hidden, wide = config.hidden_size, config.intermediate_size
        attended = self.attend_by(x, name, bias, last)
        attended = self.linear(attended, f"{name}.{names.attended}", hidden, hidden)
        rows = x if last is None else last.select(op, x)
        x = self.norm(op.Add(attended, rows), f"{name}.{names.attended_norm}")
        inner = activate(op, self.linear(x, f"{name}.{names.inner}", hidden, wide), config.hidden_act)
        outer = self.linear(inner, f"{name}.{names.outer}", wide, hidden)
        return self.norm(op.Add(outer, x), f"{name}.{names.outer_norm}")

    def attend_by(
        self, x: ir.Value, name: str, bias: AttentionBias, last: LastTokens | None = None
    ) -> ir.Value:
        """Add the attention of layer `name`, without its output projection: (positions, hidden_size)."""
        query, key, value = self.project(x, name) if last is None else self.project_last(x, name, last)
        return self.attend(query, key, value, bias, self.config.head_dim**-0.5, last=last)

    def project_last(self, x: ir.Value, name: str, last: LastTokens) -> list[Projection]:
        """Return the queries of `last`, and keys and values, which are parts of one product."""
        config, hidden, names = self.config, self.config.hidden_size, self.layer_names
        count, dim = config.num_attention_heads, config.head_dim
        query = self.linear(last.select(self.op, x), f"{name}.{names.query}", hidden, hidden)
        parts = [f"{name}.{part}" for part in (names.key, names.value)]
        projected = self.linear_joined(x, f"{parts[0]}_value", dict.fromkeys(parts, hidden), hidden)
        return self.beside_queries(query, projected, count, dim)

    def project(self, x: ir.Value, name: str) -> list[Projection]:
        """Return queries, keys and values, which are parts of one product."""
        config, hidden, names = self.config, self.config.hidden_size, self.layer_names
        parts = [f"{name}.{part}" for part in (names.query, names.key, names.value)]
        joined = f"{parts[0]}_key_value"
        projected = self.linear_joined(x, joined, dict.fromkeys(parts, hidden), hidden)
        return self.split_thirds(projected, config.num_attention_heads, config.head_dim)

    def norm(self, x: ir.Value, name: str) -> ir.Value:
        """Add layer normalisation over the hidden size."""
        return self.layer_norm(x, name, self.config.layer_norm_eps)


class Bert(PostNorm[BertLike]):
    """The graph of BERT: post-norm layers over word, type and absolute position embeddings."""

    prefix = "bert."
    embeddings_norm: ClassVar[str] = "embeddings.LayerNorm"
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
    )

    def embed(self) -> ir.Value:
        """Add the embeddings, normalised: (positions, embedding_size)."""
        config = self.config
        return self.layer_norm(
            self.add_embeddings(), self.embeddings_norm, config.layer_norm_eps, width=config.embedding_size
        )

    def add_embeddings(self) -> ir.Value:
        """Add word, type and position embeddings, summed: (positions, embedding_size)."""
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
        return self.op.Add(self.op.Add(words, types), positions)

    def types(self) -> ir.Value:
        """Return each token's index in the type embeddings, (positions,)."""
        return self.known_types(self.config.type_vocab_size)


_ROBERTA_SEQUENCE_HEAD = SequenceHead("classifier.dense", "tanh", "classifier.out_proj")
_ROBERTA_VOCABULARY_HEAD = VocabularyHead(
    dense="lm_head.dense",
    norm="lm_head.layer_norm",
    activation="gelu",
)


class Roberta(Bert[RobertaLike]):
    """The graph of RoBERTa (Liu et al., 2019): BERT with positions counted from the padding token's id."""

    prefix = "roberta."
    sequence_head: ClassVar = _ROBERTA_SEQUENCE_HEAD
    vocabulary_head: ClassVar = _ROBERTA_VOCABULARY_HEAD

    def positions(self) -> ir.Value:
        """Return each token's index in the position embeddings, (positions,)."""
        return self.positions_after(self.config.pad_token_id)


class DistilBert(PostNorm[DistilBertConfig]):
    """The graph of DistilBERT (Sanh et al., 2019): BERT without token types.

    Sinusoidal positions are stored as a table.
    """

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
    )

    def layer_name(self, index: int) -> str:
        """Return the prefix of a layer's tensors."""
        return f"transformer.layer.{index}"


class Electra(Bert[ElectraConfig]):
    """The graph of ELECTRA (Clark et al., 2020): BERT with embeddings of their own width."""

    prefix = "electra."
    sequence_head: ClassVar = SequenceHead("classifier.dense", "gelu", "classifier.out_proj")
    # The generator's head. The discriminator, which most models are, has none.
    vocabulary_head: ClassVar = VocabularyHead(
        dense="generator_predictions.dense",
        norm="generator_predictions.LayerNorm",
        activation="gelu",
    )

    def embed(self) -> ir.Value:
        """Add BERT's embeddings, projected to the hidden size if they are narrower."""
        embedded = super().embed()
        narrow, wide = self.config.embedding_size, self.config.hidden_size
        return embedded if narrow == wide else self.linear(embedded, "embeddings_project", narrow, wide)


class MPNet(PostNorm[MPNetConfig]):
    """The graph of MPNet (Song et al., 2020): no token types, and an attention bias by distance."""

    computes_last_tokens: ClassVar = False

    prefix = "mpnet."
    layer_names: ClassVar = LayerNames(
        query="attention.attn.q",
        key="attention.attn.k",
        value="attention.attn.v",
        attended="attention.attn.o",
        attended_norm="attention.LayerNorm",
        inner="intermediate.dense",
        outer="output.dense",
        outer_norm="output.LayerNorm",
    )
    sequence_head: ClassVar = _ROBERTA_SEQUENCE_HEAD
    vocabulary_head: ClassVar = _ROBERTA_VOCABULARY_HEAD

    def positions(self) -> ir.Value:
        """Return each token's index in the position embeddings, (positions,)."""
        return self.positions_after(MPNET_PADDING)

    def attention_bias(self) -> AttentionBias:
        """Return the bias of attention scores: one for each head and distance."""
        op, config = self.op, self.config
        biases = self.look_up(
            "encoder.relative_attention_bias.weight",
            config.relative_attention_num_buckets,
            op.constant(distance_buckets(MPNET_BUCKETS, _MPNET_FARTHEST)),
            width=config.num_attention_heads,
        )
        return AttentionBias.of(op, self.layout, distances=DistanceBiases(biases, _MPNET_FARTHEST))
