"""The graph of Jina's "flash" implementation of XLM-RoBERTa, and of transformers' `JinaEmbeddingsV3Model`.

It is XLM-RoBERTa with tensors of other names. Queries, keys and values are one tensor. Positions may be
rotary, and all embeddings and linear layers of the encoder may have adapters of low rank (Sturua et al.,
2024).

An adapter adds a product of two narrow matrices to a matrix of the model. The graph multiplies by these
beside that matrix: by the narrow matrices of all adapters at once. Between the two it keeps the numbers of
the text's own adapter. So texts of one batch may have different adapters, and all share the weights of the
model. The token types of a text are the number of its adapter, or 0.
"""

from typing import ClassVar

import numpy as np
import onnx_ir as ir

from vecmill.architectures.bert_graph import LayerNames, Roberta
from vecmill.architectures.xlm_roberta_flash import XlmRobertaFlashConfig
from vecmill.errors import UnsupportedModel
from vecmill.graphs.batch_layout import Layout
from vecmill.graphs.ops import Ops
from vecmill.graphs.rotary import Rotation
from vecmill.graphs.softmax_attention import Projection
from vecmill.models.weights import StoredTensor, Weights
from vecmill.values.aliases import FloatArray


class XlmRobertaFlash(Roberta[XlmRobertaFlashConfig]):
    """The graph of RoBERTa with the names of the published code, rotary positions and adapters."""

    computes_last_tokens: ClassVar = False
    embeddings_norm: ClassVar = "emb_ln"
    layer_names: ClassVar = LayerNames(
        query="mixer.Wqkv",
        key="mixer.Wqkv",
        value="mixer.Wqkv",
        attended="mixer.out_proj",
        attended_norm="norm1",
        inner="mlp.fc1",
        outer="mlp.fc2",
        outer_norm="norm2",
    )

    def __init__(self, op: Ops, layout: Layout, config: XlmRobertaFlashConfig, weights: Weights) -> None:
        super().__init__(op, layout, config, weights)
        self._rotation = (
            None if config.rope is None else Rotation.of(op, layout, config.rope, config.head_dim)
        )
        self._chosen = self._choose_adapters() if config.adapters else None

    def layer_name(self, index: int) -> str:
        """Return the prefix of a layer's tensors."""
        return f"encoder.layers.{index}"

    def embed(self) -> ir.Value:
        """Add the embeddings, summed and normalised: (positions, hidden_size)."""
        op, layout, config = self.op, self.layout, self.config
        x = self._look_up("embeddings.word_embeddings", config.vocab_size, layout.token_ids)
        types = op.Mul(layout.token_type_ids, op.constant(0)) if config.adapters else self.types()
        x = op.Add(x, self._look_up("embeddings.token_type_embeddings", config.type_vocab_size, types))
        if config.rope is None:
            rows = config.max_position_embeddings
            x = op.Add(x, self._look_up("embeddings.position_embeddings", rows, self.positions()))
        return self.norm(x, self.embeddings_norm)

    def project(self, x: ir.Value, name: str) -> list[Projection]:
        """Return queries, keys and values, which stand side by side in one tensor."""
        config, width = self.config, self.config.hidden_size
        projected = self.linear(x, f"{name}.{self.layer_names.query}", width, 3 * width)
        query, key, value = self.split_thirds(projected, config.num_attention_heads, config.head_dim)
        if self._rotation is None:
            return [query, key, value]
        return [*(self._rotation.rotate_heads(self.op, part) for part in (query, key)), value]

    def linear(self, x: ir.Value, name: str, inputs: int, outputs: int, *, bias: bool = True) -> ir.Value:
        """Return the result of `EncoderGraph.linear`, with the adapters of each position.

        Raises `UnsupportedModel` for a layer of a head if there are adapters.
        """
        if self._chosen is None:
            return super().linear(x, name, inputs, outputs, bias=bias)
        if not name.startswith("encoder."):
            raise UnsupportedModel("config.json: lora_adaptations in a model with a head is not supported.")
        op, tasks, rank = self.op, len(self.config.adapters), self.config.lora_rank
        weight = self.add(self.weights.tensor(_original(name), (outputs, inputs)))
        product = op.Gemm(x, weight, self.vector(f"{name}.bias", outputs) if bias else None, transB=1)
        down = self._narrow(name, "lora_A", (tasks, rank, inputs), (0, 1, 2))
        up = self._narrow(name, "lora_B", (tasks, outputs, rank), (0, 2, 1))
        narrow = op.Mul(op.Gemm(x, down, None, transB=1), self._chosen)
        return op.Add(product, op.MatMul(narrow, up))

    def _look_up(self, name: str, rows: int, indices: ir.Value) -> ir.Value:
        """Return rows of an embedding table, with the adapters of each position: (positions, hidden_size)."""
        if self._chosen is None:
            return self.look_up(f"{name}.weight", rows, indices)
        op, tasks, rank = self.op, len(self.config.adapters), self.config.lora_rank
        found = self.look_up(_original(name), rows, indices)
        # (rows, tasks * rank), so that a token has one row.
        stored = self._stored(name, "lora_A", (tasks, rows, rank))
        table = _rearrange(stored, (1, 0, 2), (rows, tasks * rank))
        up = self._narrow(name, "lora_B", (tasks, rank, self.config.hidden_size), (0, 1, 2))
        narrow = op.Mul(op.Gather(self.add(table), indices), self._chosen)
        return op.Add(found, op.MatMul(narrow, up))

    def _narrow(
        self, name: str, part: str, shape: tuple[int, int, int], order: tuple[int, int, int]
    ) -> ir.Value:
        """Return a narrow matrix of all adapters, (tasks * rank, width)."""
        tasks, rank = len(self.config.adapters), self.config.lora_rank
        width = shape[order[2]]
        return self.add(_rearrange(self._stored(name, part, shape), order, (tasks * rank, width)))

    def _stored(self, name: str, part: str, shape: tuple[int, int, int]) -> StoredTensor:
        return self.weights.tensor(f"{name}.parametrizations.weight.0.{part}", shape)

    def _choose_adapters(self) -> ir.Value:
        """Return the factors of the narrow numbers, (positions, tasks * rank): 0 but for the own adapter."""
        tasks, rank = len(self.config.adapters), self.config.lora_rank
        own = np.repeat(np.eye(tasks, dtype=np.float32), rank, axis=1) * (self.config.lora_alpha / rank)
        none = np.zeros((1, tasks * rank), np.float32)
        table = self.op.constant(np.concatenate([none, own]), np.float32)
        return self.op.Gather(table, self.layout.token_type_ids)


def _original(name: str) -> str:
    """Return the name of a weight that has adapters."""
    return f"{name}.parametrizations.weight.original"


def _rearrange(tensor: StoredTensor, order: tuple[int, int, int], shape: tuple[int, int]) -> StoredTensor:
    """Return a tensor with its axes in another order, and then reshaped."""

    def read() -> FloatArray:
        return np.ascontiguousarray(tensor.read().transpose(order).reshape(shape))

    return StoredTensor(f"{tensor.name} of all adapters", shape, read)
