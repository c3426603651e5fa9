"""What happens between the encoder's last hidden state and finished rows, one dataclass a stage.

A model's stages come in order, as its `modules.json` lists them. `graphs.stages` builds them. What
comes before a `Pooling` or a `Splade` works on the rows of tokens, what comes after on the row of a text;
a multi-vector model has neither, and its rows stay those of tokens.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


class PoolingMode(StrEnum):
    """How token rows become one row. The values are those of sentence-transformers."""

    CLS = "cls"
    MAX = "max"
    MEAN = "mean"
    MEAN_SQRT_LEN = "mean_sqrt_len_tokens"
    WEIGHTED_MEAN = "weightedmean"
    LAST_TOKEN = "lasttoken"


@dataclass(frozen=True, slots=True)
class Pooling:
    """Token rows become one row; several modes are joined side by side.

    Without `include_prompt` the prompt's tokens are left out.
    """

    modes: tuple[PoolingMode, ...]
    include_prompt: bool = True


class DenseActivation(StrEnum):
    """What follows a `Dense` stage's product, by the names of torch's classes."""

    IDENTITY = "Identity"
    TANH = "Tanh"
    RELU = "ReLU"
    GELU = "GELU"
    SIGMOID = "Sigmoid"
    SILU = "SiLU"


@dataclass(frozen=True, slots=True)
class Dense:
    """A linear layer and its activation, of rows of tokens or of texts.

    `file` holds `linear.weight` (outputs, inputs) and, with `bias`, `linear.bias`. With `residual`
    the input is added to the output, through `residual.weight` where their widths differ.
    """

    file: Path = field(repr=False)  # what it holds is part of the fingerprint, where it lies is not
    inputs: int
    outputs: int
    bias: bool = True
    activation: DenseActivation = DenseActivation.TANH
    residual: bool = False


@dataclass(frozen=True, slots=True)
class LayerNorm:
    """Layer normalisation with torch's default epsilon; `file` holds `norm.weight` and `norm.bias`."""

    file: Path = field(repr=False)
    width: int


@dataclass(frozen=True, slots=True)
class Normalize:
    """Rows get unit length."""


@dataclass(frozen=True, slots=True)
class Splade:
    """Logits of tokens over the vocabulary become one weight for each entry: (texts, vocab_size).

    A logit x counts log(1 + max(x, 0)), with `twice` log(1 + that), and the largest counts, or
    with `add_up` the sum of all.
    """

    add_up: bool = False
    twice: bool = False


@dataclass(frozen=True, slots=True)
class Truncate:
    """Rows keep their first `width` columns."""

    width: int


Stage = Pooling | Dense | LayerNorm | Normalize | Splade | Truncate
"""Everything that `graphs.stages` can build."""
