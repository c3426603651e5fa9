"""The outputs of an embedding model with token heads (BGE-M3), as they are served."""

import numpy as np

from vecmill.models import ModelDescription
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.embeddings import CombinedEmbedding, Embedding, Output, SparseEmbedding
from vecmill.vectors import sparse


def choose_output(embedding: Embedding, output: Output) -> Embedding:
    """Return one of the outputs that a call was asked for."""
    if not isinstance(embedding, CombinedEmbedding):
        return embedding  # the only one
    return embedding.usual if output is Output.USUAL else embedding.others[output]


def keep_weights(
    description: ModelDescription, tokenizer: Tokenizer, embedding: Embedding
) -> SparseEmbedding:
    """Return the sparse embedding of a text, without the special tokens that have no weight."""
    found = sparse(choose_output(embedding, Output.TOKEN_WEIGHTS))
    if description.token_heads is None:
        return found
    ids = (tokenizer.library.token_to_id(token) for token in description.token_heads.unweighted)
    kept = np.isin(found.columns, [token_id for token_id in ids if token_id is not None], invert=True)
    return SparseEmbedding(found.columns[kept], found.values[kept])
