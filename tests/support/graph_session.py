"""Running a graph as it was built, so that a test can break it first."""

from pathlib import Path
from typing import Any

import onnxruntime

from vecmill.graphs.finish import write_graph
from vecmill.values.batch import Batch
from vecmill.values.embeddings import Embeddings
from vecmill.vectors import normalize_embeddings


class GraphSession:
    """A graph in a session of its own, with nothing prepared or kept.

    `normalizes` scales rows to length 1, as an engine does for a model that normalises.
    """

    def __init__(self, model: Any, folder: Path, *, normalizes: bool = False) -> None:
        path = folder / "graph.onnx"
        write_graph(model, path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
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
