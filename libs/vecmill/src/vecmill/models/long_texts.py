"""The texts that count as long: their attention is computed in blocks, each text in a call of its own."""

from vecmill.models.description import ModelDescription

LONG_TEXT_TOKENS = 512
"""The most tokens of a text that is not long."""


def has_long_texts(description: ModelDescription) -> bool:
    """Return whether vecmill's graph of a model computes attention in blocks for long texts."""
    return description.max_tokens > LONG_TEXT_TOKENS and description.encoder.has_attention
