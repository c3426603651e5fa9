"""The sizes of a static embedding table, as sentence-transformers or model2vec stores it."""

from dataclasses import dataclass
from typing import ClassVar, Self

from vecmill.errors import CorruptModel
from vecmill.models.encoder_config import EncoderConfig
from vecmill.models.weights import Weights
from vecmill.values.aliases import FloatArray

TABLE = "embedding.weight"
MODEL2VEC_TABLE = "embeddings"
MODEL2VEC_MAPPING = "mapping"
MODEL2VEC_WEIGHTS = "weights"
TOKEN_WEIGHTS = "weight"
"""The tensor of a `SparseStaticEmbedding`: a weight for each token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticConfig(EncoderConfig):
    """The number of token embeddings and their dimensions. Texts may have any length."""

    graph: ClassVar = "static_graph:Static"
    has_config: ClassVar = False
    has_attention: ClassVar = False

    @classmethod
    def of(cls, weights: Weights) -> Self:
        """Read the settings from the tensor shapes. Raises `CorruptModel` if there is no table."""
        table = TABLE if TABLE in weights else MODEL2VEC_TABLE
        rows, width = _check_axes(weights, table, 2)
        if TABLE not in weights and MODEL2VEC_MAPPING in weights:
            (rows,) = _check_axes(weights, MODEL2VEC_MAPPING, 1)
        return cls(vocab_size=rows, hidden_size=width)


def read_table(weights: Weights) -> FloatArray:
    """Return the embedding of each token: (vocab_size, hidden_size) float32."""
    return _read(weights, TABLE) if TABLE in weights else _fold_model2vec(weights)


def _fold_model2vec(weights: Weights) -> FloatArray:
    """Return one row per token, from the rows that tokens share and the weights of tokens."""
    table = _read(weights, MODEL2VEC_TABLE)
    if MODEL2VEC_MAPPING in weights:
        table = table[weights.integers(MODEL2VEC_MAPPING)]
    if MODEL2VEC_WEIGHTS in weights:
        table = table * _read(weights, MODEL2VEC_WEIGHTS)[:, None]
    return table


def _read(weights: Weights, name: str) -> FloatArray:
    return weights.tensor(name, weights.shape(name)).read()


def _check_axes(weights: Weights, name: str, axes: int) -> tuple[int, ...]:
    shape = weights.shape(name)
    if len(shape) != axes or 0 in shape:
        raise CorruptModel(f"The tensor {name!r} has the shape {list(shape)}, but must have {axes} axes.")
    return shape
