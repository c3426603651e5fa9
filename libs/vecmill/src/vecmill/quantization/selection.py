"""Selects the linear layers to quantise: those of a suitable size, without those that lose much accuracy.

Quantisation errors of different layers hardly depend on each other, so the losses of the layers add up to
about the loss of the whole model. A few layers and a few texts cause most of the worst loss. The search
measures the loss of each layer alone, and leaves out the layers with the largest loss for their size, until
the worst text is good enough. It stops before the layers left out take so much time that quantisation is not
worthwhile.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from vecmill.values.aliases import FloatArray, IntArray
from vecmill.values.embeddings import Embedding, SparseEmbedding
from vecmill.vectors import dense, normalize_embeddings

# Smaller matrices save little, and those of heads have few outputs.
_SMALLEST_SIZE = 64 * 64
_FEWEST_OUTPUTS = 32
# More outputs per input: logits over a vocabulary, whose order must be exact.
_MOST_EXPANSION = 12


@dataclass(frozen=True, slots=True)
class Matrix:
    """A weight (outputs, inputs) and the products `rows @ weight.T` that use it."""

    weight: ir.Value
    products: Sequence[ir.Node]

    @property
    def name(self) -> str:
        """The weight's name."""
        assert self.weight.name is not None
        return self.weight.name

    @property
    def inputs(self) -> int:
        """The number of columns of the weight."""
        return _dimensions(self.weight)[1]

    @property
    def outputs(self) -> int:
        """The number of rows of the weight."""
        return _dimensions(self.weight)[0]

    @property
    def sources(self) -> list[ir.Value]:
        """The other factors of the products, (rows, inputs) each."""
        return [_present(product.inputs[0]) for product in self.products]

    def read(self) -> FloatArray:
        """Read the weight, (outputs, inputs), float32."""
        assert self.weight.const_value is not None
        values: FloatArray = self.weight.const_value.numpy()
        return values


def find_matrices(graph: ir.Graph) -> list[Matrix]:
    """Return the weights of linear layers that should be quantised, in the order of the graph."""
    return [matrix for matrix in _linear_layers(graph) if _is_suitable(matrix)]


def add_constant(graph: ir.Graph, name: str, values: npt.ArrayLike, dtype: npt.DTypeLike) -> ir.Value:
    """Add a constant to the graph and return its value."""
    array = np.asarray(values, dtype, order="C")
    value = ir.Value(
        name=name,
        shape=ir.Shape(array.shape),
        type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
        const_value=ir.Tensor(array),
    )
    graph.register_initializer(value)
    return value


def _linear_layers(graph: ir.Graph) -> Iterator[Matrix]:
    for weight in list(graph.initializers.values()):
        uses = weight.uses()
        if uses and all(use.node.op_type == "Gemm" and use.idx == 1 for use in uses):
            yield Matrix(weight, [use.node for use in uses])


def _is_suitable(matrix: Matrix) -> bool:
    outputs, inputs = _dimensions(matrix.weight)
    return (
        outputs * inputs >= _SMALLEST_SIZE
        and outputs >= _FEWEST_OUTPUTS
        and outputs <= _MOST_EXPANSION * inputs
    )


def _dimensions(weight: ir.Value) -> tuple[int, int]:
    assert weight.shape is not None
    outputs, inputs = weight.shape.numpy()
    return outputs, inputs


def _present(value: ir.Value | None) -> ir.Value:
    assert value is not None
    return value


# The loss, 1 - cosine, of the worst text. `vecmill optimize` accepts 0.001; other texts can be worse.
_LIMIT = 0.0009
# A larger loss is not caused by a few layers.
_HOPELESS = 3 * _LIMIT
_MOST_LEFT_OUT = 0.25  # of all weights
_LEAST = 1e-9  # a smaller loss is noise
_WORST_TEXTS = 8  # with the largest losses, over which single layers are measured
# Each measurement compiles the model. So the layers of deep models are left out in groups of neighbours.
_MOST_GROUPS = 32

# The losses (texts,) of the given texts, of a model in which only the named layers are quantised.
MeasureLosses = Callable[[Sequence[str], Sequence[int]], FloatArray]


def select_layers(sizes: Mapping[str, int], texts: int, measure: MeasureLosses) -> list[str]:
    """Return the names of the layers to quantise, in the order of `sizes`.

    `sizes` are the numbers of weights of all layers, `texts` is the number of texts. All layers are returned
    if their loss is small enough, or so large that the search cannot help.
    """
    names, everything = list(sizes), range(texts)
    losses = measure(names, everything)
    if losses.max() <= _LIMIT or not losses.max() <= _HOPELESS:
        return names
    worst: IntArray = np.argsort(-losses, kind="stable")[:_WORST_TEXTS]
    unquantized = measure([], worst.tolist())
    groups = _group_neighbours(names)
    single = np.stack([measure(group, worst.tolist()) for group in groups])
    alone = np.maximum(single - unquantized, _LEAST)
    weights = np.array([sum(sizes[name] for name in group) for group in groups], np.float32)
    shares: FloatArray = weights / weights.sum()
    quantized = np.ones(len(groups), bool)
    while losses.max() > _LIMIT:
        # The measured losses of the current layers correct the predictions.
        predicted: FloatArray = alone * (losses[worst] / alone[quantized].sum(axis=0))
        if not _leave_out(quantized, predicted, shares):
            break
        losses = measure(_chosen(groups, quantized), everything)
    return _chosen(groups, quantized)


def output_losses(found: Sequence[Embedding], expected: Sequence[Embedding], *, scored: bool) -> FloatArray:
    """Return the loss of each text, (texts,): 1 - cosine of its worst embedding.

    Scores (`scored`) have no direction. Their loss is the loss of a unit vector with the same relative error.
    """
    pairs = [_as_rows(one, other) for one, other in zip(found, expected, strict=True)]
    if not scored:
        return np.array([np.max(_cosine_losses(one, other), initial=0) for one, other in pairs])
    scale = max(float(np.abs(other).max(initial=0)) for _, other in pairs) or 1.0
    return np.array([(np.abs(one - other).max(initial=0) / scale) ** 2 / 2 for one, other in pairs])


def _leave_out(quantized: npt.NDArray[np.bool_], losses: FloatArray, shares: FloatArray) -> bool:
    """Leave out layers until the predicted loss is small enough; at least one layer, if any fits."""
    changed = False
    while not changed or losses[quantized].sum(axis=0).max() > _LIMIT:
        room = _MOST_LEFT_OUT - shares[~quantized].sum()
        fitting = quantized & (shares <= room)
        if not fitting.any():
            break
        text = losses[quantized].sum(axis=0).argmax()
        quantized[np.where(fitting, losses[:, text] / shares, -np.inf).argmax()] = False
        changed = True
    return changed


def _group_neighbours(names: Sequence[str]) -> list[Sequence[str]]:
    size = -(-len(names) // _MOST_GROUPS)
    return [names[start : start + size] for start in range(0, len(names), size)]


def _chosen(groups: Sequence[Sequence[str]], quantized: npt.NDArray[np.bool_]) -> list[str]:
    chosen = (group for group, is_quantized in zip(groups, quantized, strict=True) if is_quantized)
    return [name for group in chosen for name in group]


def _as_rows(found: Embedding, expected: Embedding) -> tuple[FloatArray, FloatArray]:
    """Return two embeddings as dense arrays of one shape."""
    if not isinstance(found, SparseEmbedding) or not isinstance(expected, SparseEmbedding):
        return dense(found), dense(expected)
    columns = np.union1d(found.columns, expected.columns)
    rows = np.zeros((2, 1, len(columns)), np.float32)
    for row, embedding in zip(rows, (found, expected), strict=True):
        row[0, np.searchsorted(columns, embedding.columns)] = embedding.values
    return rows[0], rows[1]


def _cosine_losses(found: FloatArray, expected: FloatArray) -> FloatArray:
    products = normalize_embeddings(found) * normalize_embeddings(expected)
    losses: FloatArray = np.where(
        found.any(axis=1) | expected.any(axis=1), 1 - products.sum(axis=1, dtype=np.float64), 0
    )
    return losses
