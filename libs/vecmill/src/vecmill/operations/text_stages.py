"""The stages of an embedding model around its mean, in numpy: for means over parts of a text.

Engines pool a text whole. Late chunking takes the mean over the tokens of a chunk instead, and then does what
the graph does after its own mean. `graphs.stages` has the rules and their source.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from vecmill.errors import UnsupportedTask
from vecmill.models import ModelDescription
from vecmill.models.stages import (
    TORCH_EPSILON,
    Dense,
    DenseActivation,
    LayerNorm,
    Normalize,
    Pooling,
    PoolingMode,
    Stage,
    Truncate,
)
from vecmill.models.weights import Weights
from vecmill.values.aliases import FloatArray
from vecmill.vectors import normalize_embeddings, sigmoid

Apply = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, slots=True)
class MeanStages:
    """The stages of a model that takes the mean over tokens: those before the mean, and those after it.

    The final normalisation is not among them, as `ModelDescription.graph_stages` says. The weights of the
    stages are read when they are first used, and kept.
    """

    before: tuple[Stage, ...]
    pooling: Pooling
    after: tuple[Stage, ...]
    _loaded: dict[Stage, Apply] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, description: ModelDescription, *, asked: str, name: str) -> "MeanStages":
        """Find the mean of a model.

        Raises `UnsupportedTask` for a model without one; `asked` is what the field `name` of the request asks
        for.
        """
        stages = description.graph_stages
        places = [place for place, stage in enumerate(stages) if isinstance(stage, Pooling)]
        pooling = stages[places[0]] if places else None
        if not isinstance(pooling, Pooling) or pooling.modes != (PoolingMode.MEAN,):
            does = f"pools by {' and '.join(pooling.modes)}" if isinstance(pooling, Pooling) else "does not"
            raise UnsupportedTask(
                f"{asked} needs a model that gives an embedding for each token, or the mean of these; "
                f"{description.name} {does}. Leave it out, and each text is embedded alone.",
                field=name,
            )
        return cls(stages[: places[0]], pooling, stages[places[0] + 1 :])

    def apply_before(self, tokens: FloatArray) -> FloatArray:
        """Return the embeddings of tokens that are to be averaged: (tokens, width), from hidden states."""
        return self._apply(self.before, tokens)

    def apply_after(self, means: FloatArray) -> FloatArray:
        """Return the embeddings of texts before their normalisation: (n, dim), from means (n, width)."""
        return self._apply(self.after, means)

    def _apply(self, stages: tuple[Stage, ...], values: FloatArray) -> FloatArray:
        for stage in stages:
            if stage not in self._loaded:
                self._loaded[stage] = _load(stage)
            values = self._loaded[stage](values)
        return values


def _load(stage: Stage) -> Apply:
    """Read the weights of a stage, and return what it does with (n, width) float32."""
    match stage:
        case Dense():
            return _load_dense(stage)
        case LayerNorm():
            scale, shift = (
                Weights.open(stage.file).tensor(f"norm.{part}", (stage.width,)).read()
                for part in ("weight", "bias")
            )
            return lambda values: _normalize_layer(values, scale, shift)
        case Normalize():
            return normalize_embeddings
        case Truncate():
            return lambda values: np.ascontiguousarray(values[:, : stage.width])
    raise AssertionError(f"{stage} has no place around a mean")


def _load_dense(dense: Dense) -> Apply:
    weights, shape = Weights.open(dense.file), (dense.outputs, dense.inputs)
    weight = weights.tensor("linear.weight", shape).read().T
    bias = weights.tensor("linear.bias", shape[:1]).read() if dense.bias else np.float32(0)
    is_wider = dense.residual and dense.inputs != dense.outputs
    residual = weights.tensor("residual.weight", shape).read().T if is_wider else None
    activate = _ACTIVATIONS[dense.activation]

    def apply(values: FloatArray) -> FloatArray:
        out = activate(values @ weight + bias)
        if not dense.residual:
            return out
        return out + (values if residual is None else values @ residual)

    return apply


def _normalize_layer(values: FloatArray, scale: FloatArray, shift: FloatArray) -> FloatArray:
    wide = values.astype(np.float64)
    wide -= wide.mean(axis=1, keepdims=True)
    wide /= np.sqrt(np.square(wide).mean(axis=1, keepdims=True) + TORCH_EPSILON)
    return (wide * scale + shift).astype(np.float32)


def _gelu(values: FloatArray) -> FloatArray:
    erf = np.frompyfunc(math.erf, 1, 1)(values / math.sqrt(2)).astype(np.float64)
    out: FloatArray = (values * 0.5 * (1 + erf)).astype(np.float32)
    return out


def _same(values: FloatArray) -> FloatArray:
    return values


_ACTIVATIONS: Mapping[DenseActivation, Apply] = MappingProxyType(
    {
        DenseActivation.IDENTITY: _same,
        DenseActivation.TANH: np.tanh,
        DenseActivation.RELU: lambda values: np.maximum(values, np.float32(0)),
        DenseActivation.GELU: _gelu,
        DenseActivation.SIGMOID: sigmoid,
        DenseActivation.SILU: lambda values: values * sigmoid(values),
    }
)
