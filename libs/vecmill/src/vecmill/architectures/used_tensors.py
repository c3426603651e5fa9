"""The tensors that a model uses: those that its graph asks for, by the names that the graph has for them.

A file may have more, such as the pooler of BERT or the head of a language model, and other names, such as
those with the prefix of a class. Neither changes an output. Only the shapes of tensors are read here.
"""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Self

from vecmill.architectures.build import build_graph
from vecmill.architectures.static import TABLE, TOKEN_WEIGHTS, read_table
from vecmill.graphs.stages import LAYER_WEIGHTS, list_autoencoder_shapes
from vecmill.models.adapters import Adapter, list_tensors
from vecmill.models.description import ModelDescription
from vecmill.models.encoder_config import TransformersConfig
from vecmill.models.model_weights import open_weights
from vecmill.models.stages import Dense, LayerNorm, SparseAutoEncoder, Stage, WeightedLayers
from vecmill.models.tensor_digests import DigestedTensor
from vecmill.models.weights import FLOATS, StoredTensor, Weights, open_weights_file
from vecmill.values.task import Task


class RecordedWeights(Weights):
    """Weights that record which tensors are asked for: `used`, by name."""

    used: dict[str, DigestedTensor]

    @classmethod
    def of(cls, weights: Weights) -> Self:
        """Return the same weights, which begin to record."""
        recorded = cls.__new__(cls)
        recorded.__dict__.update(weights.__dict__, used={})
        return recorded

    def tensor(self, name: str, shape: tuple[int, ...], *, kinds: Collection[str] = FLOATS) -> StoredTensor:
        """Return the tensor `name` as `Weights` does, and record it."""
        found = super().tensor(name, shape, kinds=kinds)
        used = found.name  # another one, if it is tied to the one that is asked for
        if used not in self.used:
            self.used[used] = DigestedTensor(found, lambda start, stop: self.part(used, shape, start, stop))
        return found


def list_used_tensors(description: ModelDescription) -> list[DigestedTensor]:
    """Return the tensors of the encoder and the head of a model that is no exported graph.

    The matrices of an adapter are not added to them. Raises the same errors as `build_graph`.
    """
    if description.is_table:
        return [_find_table(description)]
    if isinstance(description.encoder, TransformersConfig):
        return list(_list_all(*description.weights_files))
    recorded = RecordedWeights.of(open_weights(description, adds_products=False))
    build_graph(description, weights=recorded)
    return list(recorded.used.values())


def list_stage_tensors(stage: Stage) -> list[DigestedTensor]:
    """Return the tensors of one stage. Raises the same errors as `Weights.open`."""
    shapes: dict[str, tuple[int, ...]]
    match stage:
        case WeightedLayers():
            shapes = {LAYER_WEIGHTS: (stage.count,)}
        case SparseAutoEncoder():
            shapes = list_autoencoder_shapes(stage)
        case LayerNorm():
            shapes = {"norm.weight": (stage.width,), "norm.bias": (stage.width,)}
        case Dense():
            shapes = {"linear.weight": (stage.outputs, stage.inputs)}
            if stage.bias:
                shapes["linear.bias"] = (stage.outputs,)
            if stage.residual and stage.inputs != stage.outputs:
                shapes["residual.weight"] = (stage.outputs, stage.inputs)
        case _:
            return []
    weights = Weights.open(stage.file)
    return [DigestedTensor(weights.tensor(name, shape)) for name, shape in shapes.items()]


def list_adapter_tensors(adapter: Adapter) -> list[DigestedTensor]:
    """Return the tensors of an adapter by the names of its class. Raises the errors of `open_merged`."""
    weights = Weights.open(adapter.weights_file)
    names = list_tensors(open_weights_file(adapter.weights_file), adapter.weights_file)
    return [DigestedTensor(weights.tensor(own, weights.shape(own))) for own in names.values()]


def list_file_tensors(file: Path) -> list[DigestedTensor]:
    """Return all tensors of floating-point numbers in a file. Raises the errors of `Weights.open`."""
    return list(_list_all(file))


def _find_table(description: ModelDescription) -> DigestedTensor:
    """Return the table of a static model as one tensor, whichever layout its file has."""
    weights, encoder = Weights.open(*description.weights_files), description.encoder
    if description.task is Task.SPARSE:
        return DigestedTensor(weights.tensor(TOKEN_WEIGHTS, (description.vocab_size,)))
    shape = (encoder.vocab_size, encoder.hidden_size)
    if TABLE in weights:
        return DigestedTensor(weights.tensor(TABLE, shape))
    return DigestedTensor(StoredTensor(TABLE, shape, lambda: read_table(weights)))


def _list_all(*paths: Path) -> Iterator[DigestedTensor]:
    weights = Weights.open(*paths)
    for path in paths:
        file = open_weights_file(path)
        for name in list(file.keys()):
            if file.get_slice(name).get_dtype() in FLOATS:
                yield DigestedTensor(weights.tensor(name, weights.shape(name)))
