"""The sizes of a static embedding table, as sentence-transformers or model2vec stores it."""

from dataclasses import dataclass
from typing import Self

from vecmill.models.weights import Weights

TABLE = "embedding.weight"
MODEL2VEC_TABLE = "embeddings"
MODEL2VEC_MAPPING = "mapping"
MODEL2VEC_WEIGHTS = "weights"


@dataclass(frozen=True, slots=True)
class StaticConfig:
    """The number of token embeddings and their dimensions. Texts may have any length."""

    vocab_size: int
    hidden_size: int
    max_input_tokens: int | None = None

    @classmethod
    def of(cls, weights: Weights) -> Self:
        """Read the settings from the tensor shapes. Raises `CorruptModel` if there is no table."""
        rows, width = weights.shape(TABLE if TABLE in weights else MODEL2VEC_TABLE)
        if TABLE not in weights and MODEL2VEC_MAPPING in weights:
            (rows,) = weights.shape(MODEL2VEC_MAPPING)
        return cls(rows, width)
