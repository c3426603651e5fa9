"""Static models as sentence-transformers' `StaticEmbedding` computes them: each token has its row.

An empty text has no tokens, and its mean is zeros. So that no text is empty here, there is one row more
than the model has, of zeros, and `Tokenizer` gives an empty text that one token.
"""

import numpy as np
import onnx_ir as ir

from vecmill.graphs.family import Family
from vecmill.models.static import (
    MODEL2VEC_MAPPING,
    MODEL2VEC_TABLE,
    MODEL2VEC_WEIGHTS,
    TABLE,
    StaticConfig,
)
from vecmill.models.weights import StoredTensor
from vecmill.types import FloatArray


class Static(Family[StaticConfig]):
    """A look-up and nothing else."""

    def encode(self) -> ir.Value:
        """Add the look-up. Returns (positions, hidden_size), float32."""
        rows, width = self.config.vocab_size, self.config.hidden_size
        table = StoredTensor(TABLE, (rows + 1, width), self._read_table)
        return self.op.Gather(self.op.weight(table), self.layout.token_ids)

    def _read_table(self) -> FloatArray:
        table = self._fold_model2vec() if TABLE not in self.weights else self._read(TABLE)
        return np.concatenate([table, np.zeros((1, table.shape[1]), np.float32)])

    def _fold_model2vec(self) -> FloatArray:
        """One row a token: shared rows are repeated, and what a token counts is multiplied in."""
        table = self._read(MODEL2VEC_TABLE)
        if MODEL2VEC_MAPPING in self.weights:
            table = table[self.weights.integers(MODEL2VEC_MAPPING)]
        if MODEL2VEC_WEIGHTS in self.weights:
            table = table * self._read(MODEL2VEC_WEIGHTS)[:, None]
        return table

    def _read(self, name: str) -> FloatArray:
        return self.weights.tensor(name, self.weights.shape(name)).read()
