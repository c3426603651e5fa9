"""The graph of static models: a look-up of token embeddings, as sentence-transformers' `StaticEmbedding`.

The embedding of an empty text is zeros. So that no text is empty, the table has an additional row of zeros,
and `Tokenizer` encodes an empty text as the token of that row.
"""

import numpy as np
import onnx_ir as ir

from vecmill.architectures.static import (
    MODEL2VEC_MAPPING,
    MODEL2VEC_TABLE,
    MODEL2VEC_WEIGHTS,
    TABLE,
    StaticConfig,
)
from vecmill.graphs.encoder import EncoderGraph
from vecmill.models.weights import StoredTensor
from vecmill.values.aliases import FloatArray


class Static(EncoderGraph[StaticConfig]):
    """The graph of a static model: one look-up."""

    def encode(self) -> ir.Value:
        """Add the look-up. Return token embeddings, (positions, hidden_size), float32."""
        rows, width = self.config.vocab_size, self.config.hidden_size
        table = StoredTensor(TABLE, (rows + 1, width), self._read_table)
        return self.op.Gather(self.op.weight(table), self.layout.token_ids)

    def _read_table(self) -> FloatArray:
        table = self._fold_model2vec() if TABLE not in self.weights else self._read(TABLE)
        return np.concatenate([table, np.zeros((1, table.shape[1]), np.float32)])

    def _fold_model2vec(self) -> FloatArray:
        """Return one row per token, from the rows that tokens share and the weights of tokens."""
        table = self._read(MODEL2VEC_TABLE)
        if MODEL2VEC_MAPPING in self.weights:
            table = table[self.weights.integers(MODEL2VEC_MAPPING)]
        if MODEL2VEC_WEIGHTS in self.weights:
            table = table * self._read(MODEL2VEC_WEIGHTS)[:, None]
        return table

    def _read(self, name: str) -> FloatArray:
        return self.weights.tensor(name, self.weights.shape(name)).read()
