"""Static embeddings: a table of token vectors, without an encoder."""
