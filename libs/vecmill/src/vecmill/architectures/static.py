"""The sizes of a static embedding table, as sentence-transformers or model2vec stores it."""

from dataclasses import dataclass
from typing import ClassVar, Self

from vecmill.errors import CorruptModel
from vecmill.models.encoder_config import EncoderConfig
from vecmill.models.weights import Weights

TABLE = "embedding.weight"
MODEL2VEC_TABLE = "embeddings"
MODEL2VEC_MAPPING = "mapping"
MODEL2VEC_WEIGHTS = "weights"


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


def _check_axes(weights: Weights, name: str, axes: int) -> tuple[int, ...]:
    shape = weights.shape(name)
    if len(shape) != axes or 0 in shape:
        raise CorruptModel(f"The tensor {name!r} has the shape {list(shape)}, but must have {axes} axes.")
    return shape
