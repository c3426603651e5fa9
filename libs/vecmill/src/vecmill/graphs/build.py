"""Building the whole graph of a model: encoder, pooling, normalisation."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import onnx_ir as ir

from vecmill.graphs.bert import build_bert
from vecmill.graphs.layout import Layout, RaggedLayout
from vecmill.graphs.ops import Ops
from vecmill.graphs.pooling import normalize, pool
from vecmill.models.description import ModelDescription
from vecmill.models.weights import Weights

Family = Callable[[Ops, Layout, ModelDescription, Weights], ir.Value]

# `model_type` -> what adds the encoder and returns its last hidden state, (positions, hidden).
FAMILIES: Mapping[str, Family] = MappingProxyType({"bert": build_bert})


def build_graph(description: ModelDescription) -> ir.Model:
    """The graph from ragged token ids to finished rows.

    Inputs as `RaggedLayout` says; output `rows`, (texts, dim), float32. Weights are read when the
    graph is written. Raises `CorruptModel` if the weights do not fit the settings.
    """
    op = Ops()
    layout = RaggedLayout(op)
    add_encoder = FAMILIES[description.architecture]
    hidden = add_encoder(op, layout, description, Weights.open(description.weights_file))
    rows = pool(op, layout, hidden, description.pooling)
    if description.normalize:
        rows = normalize(op, rows)
    return op.model(rows, "rows", ["texts", description.dim])


def write_graph(model: ir.Model, path: Path) -> None:
    """Write the graph to `path` and its weights beside it, one tensor in memory at a time."""
    ir.save(model, path, external_data=f"{path.name}.weights")
