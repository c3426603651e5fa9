"""Running a graph as it was built, so that a test can break it first."""

from typing import Any

import onnx_ir as ir
import onnxruntime

from vecmill.values.batch import Batch
from vecmill.values.embeddings import Embeddings
from vecmill.vectors import normalize_embeddings


def open_graph(model: ir.Model) -> onnxruntime.InferenceSession:
    """A session of the graph on one thread, from memory: files are slower, and tests of engines have them."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    graph = ir.serde.serialize_model(model).SerializeToString()
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


class GraphSession:
    """A graph in a session of its own, with nothing prepared, written or kept.

    `normalizes` scales rows to length 1, as an engine does for a model that normalises.
    """

    def __init__(self, model: ir.Model, *, normalizes: bool = False) -> None:
        self._session = open_graph(model)
        self._normalizes = normalizes

    def run(self, batch: Batch) -> Embeddings:
        """The rows of a batch, one a text, as an engine would give them."""
        values = self.outputs(batch)["rows"]
        if self._normalizes:
            values = normalize_embeddings(values)
        return Embeddings.one_per_text(values, computed_tokens=len(batch) * int(batch.lengths.max()))

    def outputs(self, batch: Batch) -> dict[str, Any]:
        """All that the graph gives for a batch, by name."""
        feed = {found.name: getattr(batch, found.name) for found in self._session.get_inputs()}
        names = [found.name for found in self._session.get_outputs()]
        return dict(zip(names, self._session.run(names, feed), strict=True))
