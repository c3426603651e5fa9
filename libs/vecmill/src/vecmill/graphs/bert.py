"""The BERT encoder (Devlin et al., 2018), as transformers' `BertModel` computes it."""

import onnx_ir as ir

from vecmill.graphs.activations import activate
from vecmill.graphs.family import Family
from vecmill.graphs.layout import Heads
from vecmill.models.bert import BertConfig
from vecmill.models.weights import concatenate


class Bert(Family[BertConfig]):
    """Post-norm layers over word, type and absolute position embeddings."""

    def encode(self) -> ir.Value:
        """Add the encoder. Returns the last hidden state, (positions, hidden_size), float32."""
        x = self._embed()
        for index in range(self.config.num_hidden_layers):
            x = self._layer(x, f"encoder.layer.{index}")
        return x

    def _embed(self) -> ir.Value:
        op, layout, config = self.op, self.layout, self.config
        words = self.look_up("embeddings.word_embeddings.weight", config.vocab_size, layout.token_ids)
        types = self.look_up(
            "embeddings.token_type_embeddings.weight", config.type_vocab_size, layout.token_type_ids
        )
        places = self.look_up(
            "embeddings.position_embeddings.weight", config.max_position_embeddings, layout.token_positions
        )
        return self._norm(op.Add(op.Add(words, types), places), "embeddings.LayerNorm")

    def _layer(self, x: ir.Value, name: str) -> ir.Value:
        op, config = self.op, self.config
        hidden, wide = config.hidden_size, config.intermediate_size
        attended = self.linear(self._attend(x, name), f"{name}.attention.output.dense", hidden, hidden)
        x = self._norm(op.Add(attended, x), f"{name}.attention.output.LayerNorm")
        inner = activate(op, self.linear(x, f"{name}.intermediate.dense", hidden, wide), config.hidden_act)
        outer = self.linear(inner, f"{name}.output.dense", wide, hidden)
        return self._norm(op.Add(outer, x), f"{name}.output.LayerNorm")

    def _attend(self, x: ir.Value, name: str) -> ir.Value:
        layout = self.layout
        count, dim = self.config.num_attention_heads, self.config.head_dim
        projected = self._project(x, name)
        query, key, value = (
            layout.split_heads(projected, Heads(first=part * count, count=count, total=3 * count, dim=dim))
            for part in range(3)
        )
        attended = self.attend(query, key, value, layout.key_bias, dim**-0.5)
        return layout.merge_heads(attended, width=count * dim)

    def _project(self, x: ir.Value, name: str) -> ir.Value:
        """Queries, keys and values in one product: (positions, 3 * hidden)."""
        hidden = self.config.hidden_size
        parts = [f"{name}.attention.self.{part}" for part in ("query", "key", "value")]
        matrices = [self.weights.tensor(f"{part}.weight", (hidden, hidden)) for part in parts]
        biases = [self.weights.tensor(f"{part}.bias", (hidden,)) for part in parts]
        stem = f"{name}.attention.self.query_key_value"
        return self.op.Gemm(
            x,
            self.op.weight(concatenate(f"{stem}.weight", matrices)),
            self.op.weight(concatenate(f"{stem}.bias", biases)),
            transB=1,
        )

    def _norm(self, x: ir.Value, name: str) -> ir.Value:
        return self.layer_norm(x, name, self.config.layer_norm_eps)
