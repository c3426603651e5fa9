"""The graph of jina-embeddings-v5 for texts: a decoder whose linear layers have an adapter for each task.

An adapter adds a product of two narrow matrices to a matrix of the model (LoRA: Hu et al., 2021). The graph
multiplies by these beside that matrix: by the narrow matrices of all tasks at once. Between the two it keeps
the numbers of the text's own task. So texts of one batch may have different tasks, and all share the weights
of the model. The token types of a text are the number of its adapter.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from vecmill.architectures.decoder_graph import Decoder
from vecmill.architectures.jina_embeddings_v5 import TaskAdaptersConfig
from vecmill.graphs.batch_layout import Layout
from vecmill.graphs.ops import Ops
from vecmill.models.task_adapters import name_matrix
from vecmill.models.weights import StoredTensor, Weights, concatenate, transpose


class JinaEmbeddingsV5(Decoder):
    """The graph of Qwen3 or EuroBERT with adapters."""

    computes_last_tokens: ClassVar = False  # the choice of a task is made for all positions at once

    config: TaskAdaptersConfig

    def __init__(self, op: Ops, layout: Layout, config: TaskAdaptersConfig, weights: Weights) -> None:
        super().__init__(op, layout, config, weights)
        self._choices: dict[tuple[int, ...], ir.Value] = {}

    def linear(self, x: ir.Value, name: str, inputs: int, outputs: int, *, bias: bool = True) -> ir.Value:
        """Return the result of `EncoderGraph.linear`, with the adapter of each position."""
        product = super().linear(x, name, inputs, outputs, bias=bias)
        return self._adapt(product, x, {name: outputs}, inputs)

    def linear_joined(
        self, x: ir.Value, name: str, outputs: Mapping[str, int], inputs: int, *, bias: bool = True
    ) -> ir.Value:
        """Return the result of `EncoderGraph.linear_joined`, with the adapter of each position."""
        product = super().linear_joined(x, name, outputs, inputs, bias=bias)
        return self._adapt(product, x, outputs, inputs)

    def _adapt(self, product: ir.Value, x: ir.Value, outputs: Mapping[str, int], inputs: int) -> ir.Value:
        """Return `product` with the changes of the modules in `outputs`, whose outputs are side by side."""
        if not any(self._list_tasks(module) for module in outputs):
            return product
        changes = [self._change(x, module, inputs, rows) for module, rows in outputs.items()]
        return self.op.Add(product, changes[0] if len(changes) == 1 else self.op.Concat(*changes, axis=1))

    def _list_tasks(self, module: str) -> list[str]:
        tasks = self.config.task_names
        return [task for task in tasks if self.weights.holds(name_matrix(module, "A", task))]

    def _change(self, x: ir.Value, module: str, inputs: int, outputs: int) -> ir.Value:
        """Return what the adapters add to the result of a module: (positions, outputs)."""
        op = self.op
        ranks, down, up = [], [], []
        adapting = self._list_tasks(module)
        for task in self.config.task_names:
            if task not in adapting:
                ranks.append(1)
                down.append(_zeros(inputs))
                up.append(_zeros(outputs))
                continue
            first, second = (name_matrix(module, part, task) for part in "AB")
            rank = self.weights.shape(first)[0]
            ranks.append(rank)
            down.append(self.weights.tensor(first, (rank, inputs)))
            up.append(transpose(self.weights.tensor(second, (outputs, rank))))
        wide = self.add(concatenate(f"{module}.lora_A of all tasks", down))
        narrow = op.Mul(op.Gemm(x, wide, None, transB=1), self._choose(tuple(ranks)))
        return op.MatMul(narrow, self.add(concatenate(f"{module}.lora_B of all tasks", up)))

    def _choose(self, ranks: tuple[int, ...]) -> ir.Value:
        """Return the factors of the narrow numbers, (positions, sum of ranks): 0 but for the own task."""
        if ranks not in self._choices:
            own = np.repeat(np.eye(len(ranks), dtype=np.float32), ranks, axis=1)
            table = self.op.constant(own[list(self.config.task_of_adapter)], np.float32)
            self._choices[ranks] = self.op.Gather(table, self.layout.token_type_ids)
        return self._choices[ranks]


def _zeros(width: int) -> StoredTensor:
    return StoredTensor("zeros", (1, width), lambda: np.zeros((1, width), np.float32))
