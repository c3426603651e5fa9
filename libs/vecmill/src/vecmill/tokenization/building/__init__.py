"""Builds the tokenizer of a model from its files, as transformers does."""
