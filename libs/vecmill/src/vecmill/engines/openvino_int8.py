"""Makes the int8 graph of the OpenVINO engine, in which some layers keep their weights.

The search runs trial models in OpenVINO itself, since OpenVINO quantises the activations.
"""

import logging
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vecmill.architectures.build import build_graph
from vecmill.engines.base import Engine
from vecmill.engines.prepared import MODEL_FILE
from vecmill.errors import MissingExtra
from vecmill.graphs.batch_layout import IndexedLayout
from vecmill.graphs.external_data import serialize_graph
from vecmill.graphs.finish import write_graph
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import Batch, compute_in_groups
from vecmill.values.embeddings import Embedding
from vecmill.values.engine_plan import Precision
from vecmill.values.messages import pip_command

if TYPE_CHECKING:
    from vecmill.models import ModelDescription
    from vecmill.quantization.rounding import RoundedLayer

logger = logging.getLogger(__name__)

_TEXTS_AT_ONCE = 8

OpenFolder = Callable[[Path, Precision], Engine]


def build_int8_graph(description: "ModelDescription", folder: Path, open_folder: OpenFolder) -> Any:
    """Return the graph of a model with int8 weights. Temporary files are written to `folder`.

    `open_folder` loads the graph in a folder as an engine. Raises `MissingExtra` if ONNX Runtime, which runs
    the fp32 graph for the calibration, is not installed.
    """
    try:
        from vecmill.quantization.calibration import held_out_sequences
        from vecmill.quantization.rewriting import compress_weights
        from vecmill.quantization.selection import select_layers
    except ImportError as error:
        raise MissingExtra(
            "Quantisation to int8 for the openvino engine needs onnxruntime: "
            f"{pip_command('install', 'vecmill[cpu]')}."
        ) from error
    logger.info("Quantising the weights of %s to int8; this happens once.", description.name)
    layers = {layer.matrix.name: layer for layer in _round(description, folder)}
    trials = _Trials(description, folder, open_folder, layers, held_out_sequences(description))
    sizes = {name: layer.rounded.values.size for name, layer in layers.items()}
    chosen = select_layers(sizes, trials.text_count, trials.measure_losses)
    logger.info("int8: %d of %d matrices are quantised.", len(chosen), len(layers))
    graph = build_graph(description, IndexedLayout)
    compress_weights(graph, [layers[name] for name in chosen])
    return graph


def _round(description: "ModelDescription", folder: Path) -> "list[RoundedLayer]":
    """Round all linear layers of a model."""
    from vecmill.quantization.calibration import calibration_sequences
    from vecmill.quantization.rounding import round_layers
    from vecmill.quantization.selection import find_matrices

    with tempfile.TemporaryDirectory(prefix="graph-", dir=folder) as scratch:
        observed = build_graph(description)
        plain = serialize_graph(build_graph(description), Path(scratch) / "plain.weights")
        matrices = find_matrices(observed.graph)
        return list(round_layers(plain, Precision.INT8, matrices, calibration_sequences(description)))


class _Trials:
    """Runs of the model with some layers quantised, compared with fp32 over `sequences`."""

    def __init__(
        self,
        description: "ModelDescription",
        folder: Path,
        open_folder: OpenFolder,
        layers: "dict[str, RoundedLayer]",
        sequences: Sequence[Any],
    ) -> None:
        self._description = description
        self._folder = folder
        self._open_folder = open_folder
        self._layers = layers
        self._sequences = sequences
        self._expected = self._compute((), sequences, Precision.FP32)

    @property
    def text_count(self) -> int:
        """The number of texts."""
        return len(self._sequences)

    def measure_losses(self, names: Sequence[str], texts: Sequence[int]) -> FloatArray:
        """Return the losses of `texts`, given by number, if only the layers `names` are quantised."""
        from vecmill.quantization.selection import output_losses

        found = self._compute(names, [self._sequences[text] for text in texts], Precision.INT8)
        expected = [self._expected[text] for text in texts]
        return output_losses(found, expected, scored=self._description.head is not None)

    def _compute(
        self, names: Sequence[str], sequences: Sequence[Any], precision: Precision
    ) -> list[Embedding]:
        from vecmill.quantization.rewriting import compress_weights

        graph = build_graph(self._description, IndexedLayout)
        compress_weights(graph, [self._layers[name] for name in names])
        with tempfile.TemporaryDirectory(prefix="graph-", dir=self._folder) as scratch:
            write_graph(graph, Path(scratch) / MODEL_FILE)
            engine = self._open_folder(Path(scratch), precision)
            try:
                return _run(engine, sequences)
            finally:
                engine.close()


def _run(engine: Engine, sequences: Sequence[Any]) -> list[Embedding]:
    """Compute the outputs of `sequences`, texts of similar length together."""
    order = sorted(range(len(sequences)), key=lambda index: len(sequences[index]))
    groups = (order[start : start + _TEXTS_AT_ONCE] for start in range(0, len(order), _TEXTS_AT_ONCE))

    def run(members: Sequence[int]) -> list[Embedding]:
        batch = Batch.of([sequences[member] for member in members])
        return engine.run(batch, width=engine.info.lane_widths[-1]).split()

    return compute_in_groups(groups, run)
