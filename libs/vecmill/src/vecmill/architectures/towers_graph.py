"""The graphs of CLIP (Radford et al., 2021) and SigLIP (Zhai et al., 2023): encoders of texts and pictures.

The tokens of a picture are its patches: `patches` (positions, values), uint8, as they are cut out of the
resized picture. They are normalised in the graph, so that a picture waits in a quarter of the memory that its
normalised values need. CLIP has a token before them that is no patch; its values are not used.
"""

from typing import ClassVar, TypeVar

import numpy as np
import onnx_ir as ir

from vecmill.architectures.towers import (
    ClipPictureConfig,
    ClipTextConfig,
    PictureTowerConfig,
    SiglipPictureConfig,
    SiglipTextConfig,
    TextTowerConfig,
    TowerConfig,
)
from vecmill.graphs.batch_layout import MASKED_SCORE
from vecmill.graphs.encoder import EncoderGraph
from vecmill.graphs.last_tokens import LastTokens
from vecmill.graphs.ops import activate
from vecmill.graphs.softmax_attention import AttentionBias, Projection
from vecmill.models.encoder_config import BIDIRECTIONAL, CAUSAL
from vecmill.models.weights import reshape

Tower = TypeVar("Tower", bound=TowerConfig)
TextTower = TypeVar("TextTower", bound=TextTowerConfig)
PictureTower = TypeVar("PictureTower", bound=PictureTowerConfig)


class TowerGraph(EncoderGraph[Tower]):
    """A stack of pre-norm layers over embeddings. Subclasses add the embeddings and the pooling."""

    computes_last_tokens: ClassVar = True

    def embed(self) -> ir.Value:
        """Add the input of the first layer, (positions, hidden_size)."""
        raise NotImplementedError

    def finish(self, x: ir.Value) -> ir.Value:
        """Return the last hidden state from the output of the last layer, both (n, hidden_size)."""
        return x

    def encode(self) -> ir.Value:
        """Add the encoder, as `EncoderGraph.encode` describes."""
        window = CAUSAL if self.config.is_causal else BIDIRECTIONAL
        bias = AttentionBias.of(self.op, self.layout, window)
        x, final = self.embed(), self.config.num_hidden_layers - 1
        for index in range(self.config.num_hidden_layers):
            last = self.layout.last_tokens if index == final else None
            x = self.layer(x, f"encoder.layers.{index}", bias, last)
        return self.finish(x)

    def layer(self, x: ir.Value, name: str, bias: AttentionBias, last: LastTokens | None) -> ir.Value:
        """Add one layer, (positions, hidden_size), or with the rows of `last`."""
        op, hidden = self.op, self.config.hidden_size
        normed = self.norm(x, f"{name}.layer_norm1")
        query, key, value = self.project(normed, f"{name}.self_attn", last)
        attended = self.attend(query, key, value, bias, self.config.head_dim**-0.5, last=last)
        attended = self.linear(attended, f"{name}.self_attn.out_proj", hidden, hidden)
        x = op.Add(x if last is None else last.select(op, x), attended)
        return op.Add(x, self.feed_forward(self.norm(x, f"{name}.layer_norm2"), f"{name}.mlp"))

    def project(self, x: ir.Value, name: str, last: LastTokens | None) -> list[Projection]:
        """Return queries, those of `last` alone if there are any, keys and values."""
        hidden, count, dim = self.config.hidden_size, self.config.num_attention_heads, self.config.head_dim
        parts = [f"{name}.{part}_proj" for part in "qkv"]
        if last is None:
            projected = self.linear_joined(x, f"{name}.qkv_proj", dict.fromkeys(parts, hidden), hidden)
            return self.split_thirds(projected, count, dim)
        query = self.linear(last.select(self.op, x), parts[0], hidden, hidden)
        others = self.linear_joined(x, f"{name}.kv_proj", dict.fromkeys(parts[1:], hidden), hidden)
        return self.beside_queries(query, others, count, dim)

    def feed_forward(self, x: ir.Value, name: str) -> ir.Value:
        """Add two linear layers, (n, hidden_size)."""
        hidden, wide = self.config.hidden_size, self.config.intermediate_size
        inner = activate(self.op, self.linear(x, f"{name}.fc1", hidden, wide), self.config.hidden_act)
        return self.linear(inner, f"{name}.fc2", wide, hidden)

    def norm(self, x: ir.Value, name: str) -> ir.Value:
        """Add layer normalisation over the hidden size."""
        return self.layer_norm(x, name, self.config.layer_norm_eps)


class TextEncoder(TowerGraph[TextTower]):
    """The parts that encoders of texts share."""

    prefix: ClassVar = "text_model."

    def embed(self) -> ir.Value:
        """Add word and position embeddings, (positions, hidden_size)."""
        config, layout = self.config, self.layout
        words = self.look_up("embeddings.token_embedding.weight", config.vocab_size, layout.token_ids)
        table = "embeddings.position_embedding.weight"
        places = self.look_up(table, config.max_position_embeddings, layout.token_positions)
        return self.op.Add(words, places)

    def finish(self, x: ir.Value) -> ir.Value:
        """Return the last hidden state."""
        return self.norm(x, "final_layer_norm")


class ClipText(TextEncoder[ClipTextConfig]):
    """The encoder of texts of CLIP."""

    def pooled_slots(self) -> ir.Value:
        """Return the slot of the token at the end of each text, (texts,).

        An empty slot repeats the last token of its text, which is never before the first of its kind.
        """
        op, end = self.op, self.config.end_token_id
        ids = op.Gather(self.layout.token_ids, self.layout.token_of_slot)
        if end is not None:
            ids = op.Cast(op.Equal(ids, op.constant(end)), to=ir.DataType.INT64)
        return op.ArgMax(ids, axis=1, keepdims=0)

    def pool(self, hidden: ir.Value) -> ir.Value:
        """Project the token at the end of each text."""
        token = self.layout.read_at(hidden, self.pooled_slots)
        return self.linear(
            token, "text_projection", self.config.hidden_size, self.config.projection_size, bias=False
        )


class SiglipText(TextEncoder[SiglipTextConfig]):
    """The encoder of texts of SigLIP."""

    def pooled_slots(self) -> ir.Value:
        """Return the last slot of each text, (texts,)."""
        return self.op.Sub(self.layout.lengths, self.op.constant([1]))

    def pool(self, hidden: ir.Value) -> ir.Value:
        """Project the last token of each text."""
        token = self.layout.read_at(hidden, self.pooled_slots)
        return self.linear(token, "head", self.config.hidden_size, self.config.projection_size)


class PictureEncoder(TowerGraph[PictureTower]):
    """The parts that encoders of pictures share."""

    prefix: ClassVar = "vision_model."

    def embed_patches(self, *, bias: bool) -> ir.Value:
        """Add normalised and projected patches, and position embeddings: (positions, hidden_size)."""
        op, config, layout = self.op, self.config, self.layout
        values = config.patch_values
        each = config.patch_size**2
        scale, shift = (np.repeat(part, each).reshape(1, values) for part in (config.scale, config.shift))
        x = op.Mul(op.Cast(layout.patches, to=ir.DataType.FLOAT), op.constant(scale, np.float32))
        x = op.Add(x, op.constant(shift, np.float32))
        name = "embeddings.patch_embedding"
        stored = self.weights.tensor(
            f"{name}.weight", (config.hidden_size, len(config.scale), config.patch_size, config.patch_size)
        )
        weight = self.add(reshape(stored, (config.hidden_size, values)))
        x = op.Gemm(x, weight, self.vector(f"{name}.bias", config.hidden_size) if bias else None, transB=1)
        if config.has_class_token:
            is_class = op.Equal(layout.token_positions, op.constant(0))
            is_class = op.Unsqueeze(is_class, op.constant([1]))
            x = op.Where(is_class, self.vector("embeddings.class_embedding", config.hidden_size), x)
        table = "embeddings.position_embedding.weight"
        return op.Add(x, self.look_up(table, config.max_input_tokens, layout.token_positions))


class ClipPicture(PictureEncoder[ClipPictureConfig]):
    """The encoder of pictures of CLIP."""

    def embed(self) -> ir.Value:
        """Add the input of the first layer, (positions, hidden_size)."""
        return self.norm(self.embed_patches(bias=False), "pre_layrnorm")

    def pooled_slots(self) -> ir.Value:
        """Return the slot of the class token, (texts,)."""
        return self.first_slots()

    def pool(self, hidden: ir.Value) -> ir.Value:
        """Normalise and project the class token of each picture."""
        token = self.norm(self.layout.read_at(hidden, self.first_slots), "post_layernorm")
        return self.linear(
            token, "visual_projection", self.config.hidden_size, self.config.projection_size, bias=False
        )


class SiglipPicture(PictureEncoder[SiglipPictureConfig]):
    """The encoder of pictures of SigLIP."""

    def embed(self) -> ir.Value:
        """Add the input of the first layer, (positions, hidden_size)."""
        return self.embed_patches(bias=True)

    def finish(self, x: ir.Value) -> ir.Value:
        """Return the last hidden state."""
        return self.norm(x, "post_layernorm")

    def pool(self, hidden: ir.Value) -> ir.Value:
        """Attend to all patches of each picture from one learned query, and add a network."""
        op, hidden_size = self.op, self.config.hidden_size
        attended = self.linear(
            self._attend_from_probe(hidden), "head.attention.out_proj", hidden_size, hidden_size
        )
        normed = self.norm(attended, "head.layernorm")
        return op.Add(attended, self.feed_forward(normed, "head.mlp"))

    def _attend_from_probe(self, hidden: ir.Value) -> ir.Value:
        """Return the attended values of the probe, without the output projection: (texts, hidden_size)."""
        op, layout, config = self.op, self.layout, self.config
        width, count, dim = config.hidden_size, config.num_attention_heads, config.head_dim
        probe = self.add(reshape(self.weights.tensor("head.probe", (1, 1, width)), (1, width)))
        names = "head.attention.in_proj_weight", "head.attention.in_proj_bias"

        def project(x: ir.Value, start: int, stop: int) -> ir.Value:
            weight = self.add(self.weights.part(names[0], (3 * width, width), start, stop))
            shift = self.add(self.weights.part(names[1], (3 * width,), start, stop))
            return op.Gemm(x, weight, shift, transB=1)

        query = op.Reshape(project(probe, 0, width), op.constant([1, count, 1, dim]))
        query = op.Mul(query, op.constant(dim**-0.5, np.float32))
        others = project(hidden, width, 3 * width)
        key, value = (
            layout.split_heads(part.values, part.heads, layout.token_of_slot)
            for part in self.beside_queries(query, others, count, dim)[1:]
        )
        # The values of a slot that holds no patch do not count.
        mask = op.Where(layout.is_token, op.constant(0, np.float32), op.constant(MASKED_SCORE, np.float32))
        scores = op.Add(
            op.MatMul(query, op.Transpose(key, perm=[0, 1, 3, 2])), op.Unsqueeze(mask, op.constant([1, 2]))
        )
        attended = op.MatMul(op.Softmax(scores, axis=-1), value)
        return op.Reshape(attended, op.constant([-1, width]))
