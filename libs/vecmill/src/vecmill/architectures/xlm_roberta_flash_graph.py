"""The graph of Jina's "flash" implementation of XLM-RoBERTa (`jinaai/xlm-roberta-flash-implementation`).

It computes what XLM-RoBERTa computes. Its tensors have names of their own, and queries, keys and values are
one tensor.
"""

from typing import ClassVar

import onnx_ir as ir

from vecmill.architectures.bert_graph import LayerNames, Roberta
from vecmill.architectures.xlm_roberta_flash import XlmRobertaFlashConfig
from vecmill.graphs.softmax_attention import Projection


class XlmRobertaFlash(Roberta[XlmRobertaFlashConfig]):
    """The graph of RoBERTa with the names of the published code."""

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

    def layer_name(self, index: int) -> str:
        """Return the prefix of a layer's tensors."""
        return f"encoder.layers.{index}"

    def project(self, x: ir.Value, name: str) -> list[Projection]:
        """Return queries, keys and values, which stand side by side in one tensor."""
        config = self.config
        projected = self.linear(
            x, f"{name}.{self.layer_names.query}", config.hidden_size, 3 * config.hidden_size
        )
        return self.split_thirds(projected, config.num_attention_heads, config.head_dim)
