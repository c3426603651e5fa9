"""The graph of static models: a look-up of token embeddings, as sentence-transformers' `StaticEmbedding`.

The embedding of an empty text is zeros. So that no text is empty, the table has an additional row of zeros,
and `Tokenizer` encodes an empty text as the token of that row.
"""

import numpy as np
import onnx_ir as ir

from vecmill.architectures.static import TABLE, StaticConfig, read_table
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
        table = read_table(self.weights)
        return np.concatenate([table, np.zeros((1, table.shape[1]), np.float32)])
