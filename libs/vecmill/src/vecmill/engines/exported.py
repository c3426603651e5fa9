"""Preparation and loading of graphs that another program exported.

Beside the optimised graph and its weights, the prepared folder (`engines.prepared`) holds:

    exported.json     inputs and outputs of the graph, so that later starts need not parse the graph
    stages.onnx       the graph from hidden states to embeddings, if the exported graph lacks these stages
"""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from vecmill.engines.session_calls import ExportedCall, Session, check_model_call
from vecmill.models.config_fields import read_token_id
from vecmill.models.exported import ExportedGraph
from vecmill.values.engine_plan import Precision

if TYPE_CHECKING:
    from vecmill.models import ModelDescription

GRAPH_FILE = "exported.json"
STAGES_FILE = "stages.onnx"


def prepare_exported(
    description: "ModelDescription", folder: Path, optimize: Callable[[Path, Path], None]
) -> None:
    """Prepare the exported graph of `description` in `folder`; `optimize` writes the optimised graph there.

    Raises the same errors as `graphs.exported.read_exported`: `UnsupportedModel` and `CorruptModel`.
    """
    # Imported only when a graph is prepared: this import takes longer than a whole later start.
    from vecmill.graphs.exported import build_stages, read_exported
    from vecmill.graphs.finish import write_graph

    graph = read_exported(description)
    optimize(description.weights_files[0], folder)
    if graph.is_per_token:
        write_graph(build_stages(description, graph.width), folder / STAGES_FILE)
    document = dataclasses.asdict(dataclasses.replace(graph, inputs=dict(graph.inputs)))
    (folder / GRAPH_FILE).write_text(json.dumps(document, indent=2), encoding="utf-8")


def read_prepared(folder: Path) -> ExportedGraph:
    """Read the description of the graph that `prepare_exported` wrote."""
    document = json.loads((folder / GRAPH_FILE).read_text(encoding="utf-8"))
    return ExportedGraph(**{**document, "precision": Precision(document["precision"])})


def open_exported(
    description: "ModelDescription", folder: Path, session: Session, start: Callable[[Path], Session]
) -> ExportedCall:
    """Return a call of the prepared graph in `session`. `start` opens a session for the stages.

    Raises `UnsupportedModel` if the outputs of the graph differ from the model's settings.
    """
    graph = read_prepared(folder)
    stages = start(folder / STAGES_FILE) if graph.is_per_token else None
    padding = read_token_id(description.config, "pad_token_id", None)
    call = ExportedCall(session, stages, graph, pad_id=max(0, padding or 0))
    # Many exported graphs do not declare their dimensions.
    check_model_call(description, call, source=f"{description.weights_files[0]}: ONNX Runtime")
    return call
