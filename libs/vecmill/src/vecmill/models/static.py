"""A table of token rows that needs no encoder, and how model2vec stores one."""

from dataclasses import dataclass
from typing import Self

from vecmill.models.weights import Weights

TABLE = "embedding.weight"
MODEL2VEC_TABLE = "embeddings"
MODEL2VEC_MAPPING = "mapping"
MODEL2VEC_WEIGHTS = "weights"


@dataclass(frozen=True, slots=True)
class StaticConfig:
    """Tokens that have a row, and its width. Texts of any length are read."""

    vocab_size: int
    hidden_size: int
    max_input_tokens: int | None = None

    @classmethod
    def of(cls, weights: Weights) -> Self:
        """Take both from the shapes of the tensors. Raises `CorruptModel` if there is no table."""
        rows, width = weights.shape(TABLE if TABLE in weights else MODEL2VEC_TABLE)
        if TABLE not in weights and MODEL2VEC_MAPPING in weights:
            (rows,) = weights.shape(MODEL2VEC_MAPPING)
        return cls(rows, width)
