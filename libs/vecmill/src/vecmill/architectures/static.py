"""The sizes of a static embedding table, as sentence-transformers or model2vec stores it."""

from dataclasses import dataclass
from typing import ClassVar, Self

from vecmill.errors import CorruptModel
from vecmill.models.encoder_config import EncoderConfig
from vecmill.models.weights import FLOATS, INTEGERS, StoredTensor, Weights
from vecmill.values.aliases import FloatArray

TABLE = "embedding.weight"
MODEL2VEC_TABLE = "embeddings"
MODEL2VEC_MAPPING = "mapping"
MODEL2VEC_WEIGHTS = "weights"
TOKEN_WEIGHTS = "weight"
"""The tensor of a `SparseStaticEmbedding`: a weight for each token."""

_NUMBERS = FLOATS | INTEGERS


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticConfig(EncoderConfig):
    """The number of token embeddings and their dimensions. Texts may have any length."""

    graph: ClassVar = "static_graph:Static"
    has_config: ClassVar = False
    has_attention: ClassVar = False

    @classmethod
    def of(cls, weights: Weights) -> Self:
        """Read the settings from the header of the weights.

        Raises `CorruptModel` if there is no table or its parts do not fit, `UnsupportedModel` if it cannot be
        read.
        """
        table = TABLE if TABLE in weights else MODEL2VEC_TABLE
        rows, width = _check_axes(weights, table, 2)
        _find(weights, table)
        if TABLE in weights:
            return cls(vocab_size=rows, hidden_size=width)
        if MODEL2VEC_MAPPING in weights:
            (rows,) = _check_axes(weights, MODEL2VEC_MAPPING, 1)
            weights.tensor(MODEL2VEC_MAPPING, (rows,), kinds=INTEGERS)
        if MODEL2VEC_WEIGHTS in weights:
            weights.tensor(MODEL2VEC_WEIGHTS, (rows,), kinds=_NUMBERS)
        return cls(vocab_size=rows, hidden_size=width)


def read_table(weights: Weights) -> FloatArray:
    """Return the embedding of each token: (vocab_size, hidden_size) float32.

    Raises `CorruptModel` if the table of model2vec has no row for a token.
    """
    return _find(weights, TABLE).read() if TABLE in weights else _fold_model2vec(weights)


def _fold_model2vec(weights: Weights) -> FloatArray:
    """Return one row per token, from the rows that tokens share and the weights of tokens."""
    table = _find(weights, MODEL2VEC_TABLE).read()
    if MODEL2VEC_MAPPING in weights:
        mapping = weights.integers(MODEL2VEC_MAPPING)
        # As in numpy and torch, negative numbers count from the end.
        if mapping.size and not -len(table) <= mapping.min() <= mapping.max() < len(table):
            raise CorruptModel(
                f"The tensor {MODEL2VEC_MAPPING!r} names rows from {mapping.min()} to {mapping.max()}, but "
                f"{MODEL2VEC_TABLE!r} has {len(table)}."
            )
        table = table[mapping]
    if MODEL2VEC_WEIGHTS in weights:
        table = table * _find(weights, MODEL2VEC_WEIGHTS).read()[:, None]
    return table


def _find(weights: Weights, name: str) -> StoredTensor:
    """Return a tensor. model2vec stores whole numbers too, and multiplies them by no scale."""
    return weights.tensor(name, weights.shape(name), kinds=FLOATS if name == TABLE else _NUMBERS)


def _check_axes(weights: Weights, name: str, axes: int) -> tuple[int, ...]:
    shape = weights.shape(name)
    if len(shape) != axes or 0 in shape:
        raise CorruptModel(f"The tensor {name!r} has the shape {list(shape)}, but must have {axes} axes.")
    return shape
