"""Building the whole graph of a model: encoder, stages, heads."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import onnx_ir as ir

from vecmill.graphs.family import Family
from vecmill.graphs.layout import Layout, RaggedLayout
from vecmill.graphs.ops import Ops
from vecmill.graphs.stages import apply_stage
from vecmill.models.description import ModelDescription
from vecmill.models.encoder import EncoderConfig
from vecmill.models.weights import Weights

# transformers' `model_type` -> the class that builds its encoder and heads.
FAMILIES: Mapping[str, str] = MappingProxyType({"bert": "vecmill.graphs.bert:Bert"})


def build_graph(description: ModelDescription) -> ir.Model:
    """The graph from ragged token ids to finished rows.

    Inputs as `RaggedLayout` says; output `rows`, (texts, dim), float32. Weights are read when the
    graph is written. Raises `CorruptModel` if the weights do not fit the settings.
    """
    op = Ops()
    layout = RaggedLayout(op)
    x = _load_family(description, op, layout).encode()
    for stage in description.stages:
        x = apply_stage(op, layout, stage, x)
    return op.model(x, "rows", ["texts", description.dim])


def write_graph(model: ir.Model, path: Path) -> None:
    """Write the graph to `path` and its weights beside it, one tensor in memory at a time."""
    ir.save(model, path, external_data=f"{path.name}.weights")


def _load_family(description: ModelDescription, op: Ops, layout: Layout) -> Family[EncoderConfig]:
    module_name, _, class_name = FAMILIES[description.architecture].partition(":")
    family = cast(type[Family[Any]], getattr(importlib.import_module(module_name), class_name))
    return family(op, layout, description.encoder, Weights.open(description.weights_file))
