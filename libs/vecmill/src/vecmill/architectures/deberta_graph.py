"""The DeBERTa encoder, versions 2 and 3 (He et al., 2020), as transformers' `DebertaV2Model` computes it.

Attention scores have up to three parts, all divided by sqrt(head_dim * number of parts):

    content to content     query . key
    content to position    query . projected embedding of the distance
    position to content    key . embedding of the distance in another projection

Distances of one bucket share an embedding. transformers multiplies each query by all embeddings and gathers
one product for each pair of tokens. This graph first gathers the embeddings in order of distance (2 * longest
rows) and then multiplies. The products that a query needs are then consecutive, and begin one entry further
left for each next query. Reading all products in rows that are one entry shorter aligns them without an index
for each pair:

    longest = 2     a b c d      from entry longest - 1      b c d
                    e f g h      on, in rows of 3            e f g
                                                             the first 2 of each: b c, e f

A block of a long text (`graphs.softmax_attention`) has few queries and all keys. There the graph multiplies
by all embeddings and gathers, since most distances share embeddings.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from vecmill.architectures.bert_graph import Bert, SequenceHead
from vecmill.architectures.deberta import DebertaConfig
from vecmill.errors import UnsupportedModel
from vecmill.graphs.distances import disentangled_buckets, find_distances
from vecmill.graphs.last_tokens import LastTokens
from vecmill.graphs.ops import activate
from vecmill.graphs.softmax_attention import Attention, AttentionBias, Block
from vecmill.values.aliases import IntArray


class Deberta(Bert[DebertaConfig]):
    """The graph of DeBERTa: post-norm layers with disentangled attention and an optional convolution."""

    computes_last_tokens: ClassVar = False
    prefix = "deberta."
    layer_names: ClassVar = replace(
        Bert.layer_names,
        query="attention.self.query_proj",
        key="attention.self.key_proj",
        value="attention.self.value_proj",
    )

    def encode(self) -> ir.Value:
        """Add the encoder, as `EncoderGraph.encode` describes."""
        config, bias = self.config, self.attention_bias()
        embedded = self.embed()
        x = self.layer(embedded, self.layer_name(0), bias)
        if config.conv_kernel_size:
            x = self._convolve(embedded, x)
        for index in range(1, config.num_hidden_layers):
            x = self.layer(x, self.layer_name(index), bias)
        return x

    def embed(self) -> ir.Value:
        """Add word embeddings, and type and position embeddings if any, projected and normalised."""
        op, config, layout, width = self.op, self.config, self.layout, self.config.embedding_size
        x = self.look_up(
            "embeddings.word_embeddings.weight", config.vocab_size, layout.token_ids, width=width
        )
        if config.position_biased_input:
            rows = config.max_position_embeddings
            name = "embeddings.position_embeddings.weight"
            x = op.Add(x, self.look_up(name, rows, layout.token_positions, width=width))
        if config.type_vocab_size:
            rows = config.type_vocab_size
            name = "embeddings.token_type_embeddings.weight"
            x = op.Add(x, self.look_up(name, rows, self.types(), width=width))
        if width != config.hidden_size:
            x = self.linear(x, "embeddings.embed_proj", width, config.hidden_size, bias=False)
        return self.norm(x, "embeddings.LayerNorm")

    def attend_by(
        self, x: ir.Value, name: str, bias: AttentionBias, last: LastTokens | None = None
    ) -> ir.Value:
        """Add attention, as `PostNorm.attend_by` describes, with scores for contents and distances."""
        distances = {
            kind: self._project_distances(name, kind)
            for kind, is_scored in (
                ("key", self.config.content_to_position),
                ("query", self.config.position_to_content),
            )
            if is_scored and self.config.relative_attention
        }
        assert last is None

        def weigh(query: ir.Value, key: ir.Value, value: ir.Value, block: Block | None) -> ir.Value:
            scores = self._score(query, key, distances, block)
            if block is None:
                scores = self.op.Add(scores, bias.short)
            return self.op.MatMul(self.op.Softmax(scores, axis=-1), value)

        query, key, value = self.project(x, name)
        return Attention(query, key, value, bias.window).add(self.op, self.layout, weigh)

    def _score(
        self, query: ir.Value, key: ir.Value, distances: Mapping[str, ir.Value], block: Block | None
    ) -> ir.Value:
        """Return scaled scores, (texts, heads, queries, keys), without a mask.

        `distances` has the embeddings of all distances, projected to keys and to queries.
        """
        op, config = self.op, self.config
        scores = op.MatMul(query, op.Transpose(key, perm=[0, 1, 3, 2]))
        if "key" in distances:
            table = self._distance_table()
            scores = op.Add(scores, self._score_distances(query, distances["key"], table, block))
        if "query" in distances:
            # From each key to the queries.
            table = self._distance_table()[::-1]
            turned = None if block is None else Block(block.keys, block.queries)
            by_key = self._score_distances(key, distances["query"], table, turned)
            scores = op.Add(scores, op.Transpose(by_key, perm=[0, 1, 3, 2]))
        count = 1 + config.content_to_position + config.position_to_content
        return op.Mul(scores, op.constant((config.head_dim * count) ** -0.5, np.float32))

    def classify(self, hidden: ir.Value, labels: int) -> ir.Value:
        """Add the head, as `EncoderGraph.classify` describes."""
        head = SequenceHead("pooler.dense", self.config.pooler_hidden_act, "classifier")
        return self.classify_by(head, hidden, labels)

    def predict_parts(self, hidden: ir.Value, columns: int) -> Iterator[ir.Value]:
        """Add the head, as `EncoderGraph.predict_parts` describes.

        Raises `UnsupportedModel` without `legacy`.
        """
        if not self.config.legacy:
            raise UnsupportedModel(
                "config.json: legacy false is not supported for DeBERTa models with a language model head."
            )
        return super().predict_parts(hidden, columns)

    def _score_distances(
        self, x: ir.Value, projected: ir.Value, table: IntArray, block: Block | None
    ) -> ir.Value:
        """Return the products of `x`, by text, with the embeddings of the distances to other tokens.

        `projected` has the embeddings of all distances, (2 * span, hidden_size), and `table` the embedding of
        each distance. The result is (texts, heads, longest, longest), or (1, heads, queries, keys) of
        `block`, whose queries are the tokens of `x`.
        """
        if block is None:
            return self._align(x, self.op.Gather(projected, self._rows(table)))
        return self._pick(x, projected, table, block)

    def _pick(self, x: ir.Value, projected: ir.Value, table: IntArray, block: Block) -> ir.Value:
        """Return the products of `x` with the embeddings of `block`'s distances, of all in `projected`."""
        op, count, farthest = self.op, 2 * self.config.distance_span, len(table) // 2
        products = op.Reshape(self._multiply(x, projected), op.constant([0, 0, -1]))
        entries = find_distances(op, block.queries, block.keys, farthest)
        columns = op.Gather(op.constant(table), entries)
        rows = op.Range(op.constant(0), op.Size(block.queries), op.constant(1))
        starts = op.Unsqueeze(op.Mul(rows, op.constant(count)), op.constant([1]))
        return op.Gather(products, op.Add(starts, columns), axis=2)

    def _multiply(self, x: ir.Value, projected: ir.Value) -> ir.Value:
        """Return the products of `x` with embeddings: (n, hidden_size) to (texts, heads, tokens, n)."""
        op, config = self.op, self.config
        shape = op.constant([0, config.num_attention_heads, config.head_dim])
        return op.MatMul(x, op.Transpose(op.Reshape(projected, shape), perm=[1, 2, 0]))

    def _align(self, x: ir.Value, projected: ir.Value) -> ir.Value:
        """Return the products of `x` with embeddings in order of distance: (texts, heads, longest, longest).

        See the module's docstring: from entry longest - 1 on, in rows of 2 * longest - 1, of which the first
        longest entries are used.
        """
        op, longest = self.op, self.op.Shape(self.layout.slots)
        products = self._multiply(x, projected)
        width = op.Sub(op.Mul(longest, op.constant([2])), op.constant([1]))
        flat = op.Reshape(products, op.constant([0, 0, -1]))
        start = op.Sub(longest, op.constant([1]))
        used = op.Slice(flat, start, op.Add(start, op.Mul(longest, width)), op.constant([2]))
        by_row = op.Reshape(used, op.Concat(op.constant([0, 0, -1]), width, axis=0))
        return op.Slice(by_row, op.constant([0]), longest, op.constant([3]))

    def _project_distances(self, name: str, kind: str) -> ir.Value:
        """Return the distance embeddings projected to queries or keys of a layer, (2 * span, hidden_size).

        The result does not depend on the batch: ONNX Runtime computes it once, when it prepares the graph.
        """
        config, hidden = self.config, self.config.hidden_size
        rows = 2 * config.distance_span
        distances = self.add(self.weights.tensor("encoder.rel_embeddings.weight", (rows, hidden)))
        if config.normalize_distances:
            distances = self.norm(distances, "encoder.LayerNorm")
        part = f"{kind}_proj" if config.share_att_key else f"pos_{kind}_proj"
        return self.linear(distances, f"{name}.attention.self.{part}", hidden, hidden)

    def _rows(self, table: IntArray) -> ir.Value:
        """Return the entries of `table` for distances 1 - longest to longest, (2 * longest,)."""
        op, farthest = self.op, len(table) // 2
        longest = op.Size(self.layout.slots)
        distances = op.Range(op.Sub(op.constant(1), longest), op.Add(longest, op.constant(1)), op.constant(1))
        near = op.Clip(distances, op.constant(-farthest), op.constant(farthest))
        return op.Gather(op.constant(table), op.Add(near, op.constant(farthest)))

    def _distance_table(self) -> IntArray:
        """Return the embedding index of each distance of a key, the farthest behind first."""
        config, span = self.config, self.config.distance_span
        farthest = config.max_relative_positions
        return np.clip(disentangled_buckets(config.position_buckets, farthest) + span, 0, 2 * span - 1)

    def _convolve(self, embedded: ir.Value, x: ir.Value) -> ir.Value:
        """Add a convolution over `embedded` to `x`, both (positions, hidden_size)."""
        op, layout, config, hidden = self.op, self.layout, self.config, self.config.hidden_size
        kernel, groups = config.conv_kernel_size, config.conv_groups
        # Empty slots become 0 instead of the repeated last token, which may be NaN.
        is_token = op.Unsqueeze(layout.is_token, op.constant([2]))
        by_text = op.Where(is_token, layout.by_text(embedded), op.constant(0, np.float32))
        weight = self.add(self.weights.tensor("encoder.conv.conv.weight", (hidden, hidden // groups, kernel)))
        found = op.Conv(
            op.Transpose(by_text, perm=[0, 2, 1]),
            weight,
            self.vector("encoder.conv.conv.bias", hidden),
            group=groups,
            pads=[kernel // 2, kernel // 2],
        )
        by_position = layout.merge_heads(
            op.Unsqueeze(op.Transpose(found, perm=[0, 2, 1]), op.constant([1])), width=hidden
        )
        return self.norm(op.Add(x, activate(op, by_position, config.conv_act)), "encoder.conv.LayerNorm")
