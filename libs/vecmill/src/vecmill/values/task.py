"""The tasks of models."""

from enum import StrEnum


class Task(StrEnum):
    """What a model computes from a text, or from a pair of texts."""

    EMBED = "embed"  # one embedding
    RERANK = "rerank"  # one score for a query and a document
    CLASSIFY = "classify"  # a score for each label
    CLASSIFY_TOKENS = "classify_tokens"  # a score for each label and token
    SPARSE = "sparse"  # a weight for each entry of the vocabulary, mostly zeros
    MULTI_VECTOR = "multi_vector"  # one embedding for each token
