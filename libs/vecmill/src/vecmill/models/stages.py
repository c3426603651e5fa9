"""The stages between the encoder's last hidden state and the outputs, one dataclass for each.

Stages come in the order of `modules.json`. `graphs.stages` builds them. Stages before `Pooling` or `Splade`
work on token embeddings, later stages on text embeddings. A multi-vector model has neither: its outputs are
token embeddings. `WeightedLayers` comes first, and makes the token embeddings of the encoder's layers.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

TORCH_EPSILON = 1e-5
"""The epsilon of `torch.nn.LayerNorm`, and of the inputs of sparse autoencoders."""


class PoolingMode(StrEnum):
    """The way of pooling token embeddings. The values are those of sentence-transformers."""

    CLS = "cls"
    MAX = "max"
    MEAN = "mean"
    MEAN_SQRT_LEN = "mean_sqrt_len_tokens"
    WEIGHTED_MEAN = "weightedmean"
    LAST_TOKEN = "lasttoken"


@dataclass(frozen=True, slots=True)
class Pooling:
    """Pooling of token embeddings to one embedding; the results of several modes are concatenated.

    Without `include_prompt` the prompt's tokens are excluded.
    """

    modes: tuple[PoolingMode, ...]
    include_prompt: bool = True


class DenseActivation(StrEnum):
    """The activation of a `Dense` stage, by the names of torch's classes."""

    IDENTITY = "Identity"
    TANH = "Tanh"
    RELU = "ReLU"
    GELU = "GELU"
    SIGMOID = "Sigmoid"
    SILU = "SiLU"


@dataclass(frozen=True, slots=True)
class Dense:
    """A linear layer and its activation, over token or text embeddings.

    `file` holds `linear.weight` (outputs, inputs) and, with `bias`, `linear.bias`. With `residual`
    the input is added to the output, multiplied by `residual.weight` if their widths differ.
    """

    file: Path = field(repr=False)  # the content is part of the fingerprint, the path is not
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
class OwnPooling:
    """Pooling that is a part of the architecture (`EncoderGraph.pool`): tokens to (texts, dim)."""


@dataclass(frozen=True, slots=True)
class Normalize:
    """Scaling of embeddings to unit length."""


@dataclass(frozen=True, slots=True)
class Splade:
    """SPLADE pooling of token logits over the vocabulary to one weight for each entry: (texts, vocab_size).

    A logit x becomes y = log(1 + max(x, 0)), with `twice` log(1 + y). The weight is the maximum over tokens,
    with `add_up` the sum.
    """

    add_up: bool = False
    twice: bool = False


@dataclass(frozen=True, slots=True)
class SparseAutoEncoder:
    """The sparse autoencoder of CSR (Wen et al., 2025): (texts, inputs) to (texts, width).

    `file` holds the matrix, `pre_bias` and `latent_bias`. Of each embedding the `active` largest numbers are
    kept, if they are above 0. With `normalize` the inputs have the mean 0 and the deviation 1.
    """

    file: Path = field(repr=False)
    inputs: int
    width: int
    active: int
    normalize: bool = False


@dataclass(frozen=True, slots=True)
class WeightedLayers:
    """The weighted mean of the encoder's hidden states, from number `first` to the last.

    Number 0 is the input of the first layer. `file` holds `layer_weights`, (`count`,).
    """

    file: Path = field(repr=False)
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Truncate:
    """Truncation of embeddings to their first `width` dimensions."""

    width: int


StoredStage = Dense | LayerNorm | SparseAutoEncoder | WeightedLayers
"""Any stage with weights in a `file`."""

Stage = Pooling | OwnPooling | Normalize | Splade | Truncate | StoredStage
"""Any stage that `graphs.stages` can build."""
