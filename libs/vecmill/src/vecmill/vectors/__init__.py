"""Arithmetic on finished embeddings: stacking, truncation, normalisation, quantisation and comparison."""
