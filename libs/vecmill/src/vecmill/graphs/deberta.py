"""The DeBERTa encoder, versions 2 and 3 (He et al., 2020), as transformers' `DebertaV2Model` computes it.

Attention scores have up to three parts, all divided by sqrt(head_dim * number of parts):

    content to content     query . key
    content to position    query . what one projection makes of the distance
    position to content    key . what another projection makes of the distance

A distance has an embedding, or shares it with others of its bucket. The reference multiplies each query
by all embeddings and picks one product for each pair of tokens. Here the embeddings are first laid out by
distance, as far as texts are long (2 * longest rows), and multiplied then. The products of a query then
lie side by side, those of the next query one place to the left. Reading them all in rows that are one
shorter puts that right without an index for each pair:

    longest = 2     a b c d      from entry longest - 1      b c d
                    e f g h      on, in rows of 3            e f g
                                                             the first 2 of each: b c, e f
"""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from vecmill.errors import UnsupportedModel
from vecmill.graphs.activations import activate
from vecmill.graphs.bert import Bert
from vecmill.graphs.distances import disentangled_buckets
from vecmill.graphs.postnorm import LayerNames, SequenceHead
from vecmill.models.deberta import DebertaConfig
from vecmill.types import IntArray


class Deberta(Bert[DebertaConfig]):
    """Post-norm layers with disentangled attention and, perhaps, a convolution beside the first."""

    prefix = "deberta."
    layer_names: ClassVar = LayerNames(
        query="attention.self.query_proj",
        key="attention.self.key_proj",
        value="attention.self.value_proj",
        attended="attention.output.dense",
        attended_norm="attention.output.LayerNorm",
        inner="intermediate.dense",
        outer="output.dense",
        outer_norm="output.LayerNorm",
    )

    def encode(self) -> ir.Value:
        """As `Family.encode`."""
        config, bias = self.config, self.attention_bias()
        embedded = self.embed()
        x = self.layer(embedded, self.layer_name(0), bias)
        if config.conv_kernel_size:
            x = self._convolve(embedded, x)
        for index in range(1, config.num_hidden_layers):
            x = self.layer(x, self.layer_name(index), bias)
        return x

    def embed(self) -> ir.Value:
        """Words, and types and positions where there are any, projected and normalised."""
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

    def attend_by(self, x: ir.Value, name: str, bias: ir.Value) -> ir.Value:
        """As `PostNorm.attend_by`, with scores for contents and distances."""
        op, config = self.op, self.config
        query, key, value = self.project(x, name)
        scores = op.MatMul(query, op.Transpose(key, perm=[0, 1, 3, 2]))
        if config.relative_attention and config.content_to_position:
            scores = op.Add(scores, self._score_distances(query, name, "key", self._rows_of_keys()))
        if config.relative_attention and config.position_to_content:
            by_key = self._score_distances(key, name, "query", self._rows_of_queries())
            scores = op.Add(scores, op.Transpose(by_key, perm=[0, 1, 3, 2]))
        parts = 1 + config.content_to_position + config.position_to_content
        scores = op.Mul(scores, op.constant((config.head_dim * parts) ** -0.5, np.float32))
        attended = op.MatMul(op.Softmax(op.Add(scores, bias), axis=-1), value)
        return self.layout.merge_heads(attended, width=config.hidden_size)

    def classify(self, hidden: ir.Value, labels: int) -> ir.Value:
        """As `Family.classify`."""
        head = SequenceHead("pooler.dense", self.config.pooler_hidden_act, "classifier")
        return self.classify_by(head, hidden, labels)

    def predict_parts(self, hidden: ir.Value, columns: int) -> Iterator[ir.Value]:
        """As `Family.predict_parts`. Raises `UnsupportedModel` for heads that are not like BERT's."""
        if not self.config.legacy:
            raise UnsupportedModel(
                "config.json: legacy false is not supported for DeBERTa models with a language model head."
            )
        return super().predict_parts(hidden, columns)

    def _score_distances(self, x: ir.Value, name: str, kind: str, rows: ir.Value) -> ir.Value:
        """How each token's `x` (texts, heads, longest, dim) goes with the distances to all others.

        `rows` (2 * longest,) are those of the embeddings, from the distance of the last token to the first
        on. Returns (texts, heads, longest, longest).
        """
        op, config, longest = self.op, self.config, self._longest()
        projected = op.Gather(self._project_distances(name, kind), rows)
        shape = op.constant([0, config.num_attention_heads, config.head_dim])
        products = op.MatMul(x, op.Transpose(op.Reshape(projected, shape), perm=[1, 2, 0]))
        # As the module says: from entry longest - 1 on, in rows of 2 * longest - 1, of which the first
        # longest entries count.
        width = op.Sub(op.Mul(longest, op.constant([2])), op.constant([1]))
        flat = op.Reshape(products, op.constant([0, 0, -1]))
        start = op.Sub(longest, op.constant([1]))
        used = op.Slice(flat, start, op.Add(start, op.Mul(longest, width)), op.constant([2]))
        by_row = op.Reshape(used, op.Concat(op.constant([0, 0, -1]), width, axis=0))
        return op.Slice(by_row, op.constant([0]), longest, op.constant([3]))

    def _project_distances(self, name: str, kind: str) -> ir.Value:
        """The embeddings of distances as queries or keys of a layer, (2 * span, hidden_size).

        Nothing in it depends on a batch: ONNX Runtime computes it once, when it prepares the graph.
        """
        config, hidden = self.config, self.config.hidden_size
        rows = 2 * config.distance_span
        distances = self.add(self.weights.tensor("encoder.rel_embeddings.weight", (rows, hidden)))
        if config.normalize_distances:
            distances = self.norm(distances, "encoder.LayerNorm")
        part = f"{kind}_proj" if config.share_att_key else f"pos_{kind}_proj"
        return self.linear(distances, f"{name}.attention.self.{part}", hidden, hidden)

    def _rows_of_keys(self) -> ir.Value:
        """The rows for a query: its distances to keys, from the farthest behind to the farthest ahead."""
        return self._rows(self._distance_table())

    def _rows_of_queries(self) -> ir.Value:
        """The rows for a key: the distances of queries to it, in the order of the queries."""
        return self._rows(self._distance_table()[::-1])

    def _rows(self, table: IntArray) -> ir.Value:
        """The entries of `table` from distance 1 - longest to longest, (2 * longest,)."""
        op, farthest = self.op, len(table) // 2
        longest = op.Size(self.layout.slots)
        distances = op.Range(op.Sub(op.constant(1), longest), op.Add(longest, op.constant(1)), op.constant(1))
        near = op.Clip(distances, op.constant(-farthest), op.constant(farthest))
        return op.Gather(op.constant(table), op.Add(near, op.constant(farthest)))

    def _distance_table(self) -> IntArray:
        """The row of the embeddings for each distance of a key, the farthest behind first."""
        config, span = self.config, self.config.distance_span
        farthest = config.max_relative_positions
        return np.clip(disentangled_buckets(config.position_buckets, farthest) + span, 0, 2 * span - 1)

    def _longest(self) -> ir.Value:
        return self.op.Shape(self.layout.slots)

    def _convolve(self, embedded: ir.Value, x: ir.Value) -> ir.Value:
        """Add what a convolution over `embedded` finds to `x`, both (positions, hidden_size)."""
        op, layout, config, hidden = self.op, self.layout, self.config, self.config.hidden_size
        kernel, groups = config.conv_kernel_size, config.conv_groups
        # Beyond the ends of a text there is nothing: not the last token again, and not NaN times 0.
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
