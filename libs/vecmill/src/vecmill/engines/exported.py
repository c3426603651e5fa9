"""Preparing a graph that another program exported, and opening what was prepared.

Beside the optimised graph with its weights, a prepared folder (`engines.prepared`) then holds:

    exported.json     what the graph takes and gives, so that no later start has to read it again
    stages.onnx       the graph from its hidden states to rows, where it does not give rows itself
"""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vecmill.engines.calls import ExportedCall, Session
from vecmill.errors import UnsupportedModel
from vecmill.models.exported import ExportedGraph
from vecmill.plan import Precision
from vecmill.types import Batch, RowForm, TokenSequence

if TYPE_CHECKING:
    from vecmill.models import ModelDescription

GRAPH_FILE = "exported.json"
STAGES_FILE = "stages.onnx"


def fill_exported(
    description: "ModelDescription", folder: Path, optimize: Callable[[Path, Path], None]
) -> None:
    """Prepare the exported graph of `description` in `folder`; `optimize` writes the graph itself there.

    Raises `UnsupportedModel` and `CorruptModel` as `graphs.exported.read_exported` does.
    """
    # Imported only when there is something to prepare: it takes longer than a later start as a whole.
    from vecmill.graphs.build import write_graph
    from vecmill.graphs.exported import build_stages, read_exported

    graph = read_exported(description)
    optimize(description.weights_files[0], folder)
    if graph.has_token_rows:
        write_graph(build_stages(description, graph.width), folder / STAGES_FILE)
    document = dataclasses.asdict(dataclasses.replace(graph, inputs=dict(graph.inputs)))
    (folder / GRAPH_FILE).write_text(json.dumps(document, indent=2), encoding="utf-8")


def read_prepared(folder: Path) -> ExportedGraph:
    """What `fill_exported` found."""
    document = json.loads((folder / GRAPH_FILE).read_text(encoding="utf-8"))
    return ExportedGraph(**{**document, "precision": Precision(document["precision"])})


def open_exported(
    description: "ModelDescription", folder: Path, session: Session, start: Callable[[Path], Session]
) -> ExportedCall:
    """The prepared graph in `session`, with its stages, which `start` opens a session for.

    Raises `UnsupportedModel` if the graph does not give what its settings promise.
    """
    graph = read_prepared(folder)
    stages = start(folder / STAGES_FILE) if graph.has_token_rows else None
    padding = description.config.get("pad_token_id")
    call = ExportedCall(session, stages, graph, filler=padding if isinstance(padding, int) else 0)
    _try(description, call)
    return call


def _try(description: "ModelDescription", call: ExportedCall) -> None:
    """Compute two small texts: many graphs do not say in advance how many columns their rows have."""
    batch = Batch.of([TokenSequence.of([0] * length) for length in (1, 2)])
    path = description.weights_files[0]
    try:
        outputs = call(batch)
    except Exception as error:
        raise UnsupportedModel(f"{path}: ONNX Runtime fails on two small texts: {error}") from error
    rows = outputs[0]
    texts = len(batch.token_ids) if description.row_form is RowForm.TOKEN else len(batch)
    if description.row_form is not RowForm.SPARSE and rows.shape != (texts, description.dim):
        raise UnsupportedModel(
            f"{path}: the graph gives rows of shape {list(rows.shape)}, where the model's settings ask for "
            f"{[texts, description.dim]}."
        )
    if rows.dtype != np.float32:
        raise UnsupportedModel(f"{path}: the graph gives rows of {rows.dtype}; supported is float32.")
