"""Building the whole graph of a model: encoder, stages, heads."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import onnx_ir as ir

from vecmill.graphs.family import Family
from vecmill.graphs.heads import apply_head, carry_nan, drop_zeros
from vecmill.graphs.layout import Layout, RaggedLayout
from vecmill.graphs.ops import Ops
from vecmill.graphs.stages import apply_stage
from vecmill.models.description import ModelDescription, Task
from vecmill.models.encoder import EncoderConfig
from vecmill.models.weights import Weights
from vecmill.types import RowForm

# transformers' `model_type` -> the class that builds its encoder and heads.
FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        "albert": "vecmill.graphs.albert:Albert",
        "bert": "vecmill.graphs.bert:Bert",
        "camembert": "vecmill.graphs.roberta:Roberta",
        "deberta-v2": "vecmill.graphs.deberta:Deberta",
        "distilbert": "vecmill.graphs.distilbert:DistilBert",
        "electra": "vecmill.graphs.electra:Electra",
        "gemma3_text": "vecmill.graphs.gemma3:Gemma3",
        "gte": "vecmill.graphs.rotary_bert:Gte",
        "mistral": "vecmill.graphs.decoder:Decoder",
        "modernbert": "vecmill.graphs.modernbert:ModernBert",
        "mpnet": "vecmill.graphs.mpnet:MPNet",
        "new": "vecmill.graphs.rotary_bert:New",
        "nomic_bert": "vecmill.graphs.rotary_bert:NomicBert",
        "qwen2": "vecmill.graphs.decoder:Decoder",
        "qwen3": "vecmill.graphs.decoder:Decoder",
        "roberta": "vecmill.graphs.roberta:Roberta",
        "static": "vecmill.graphs.static:Static",
        "t5": "vecmill.graphs.t5:T5",
        "xlm-roberta": "vecmill.graphs.roberta:Roberta",
    }
)


def build_graph(description: ModelDescription) -> ir.Model:
    """The graph from ragged token ids to finished rows.

    Inputs as `RaggedLayout` says; output `rows`, float32: (texts, dim), (tokens, dim) of a model with a row
    for each token, or as `heads.drop_zeros` says of a sparse one. Weights are read when the graph is
    written. Raises `CorruptModel` if the weights do not fit the settings, `UnsupportedModel` if the family
    lacks the head.
    """
    op = Ops()
    layout = RaggedLayout(op, has_unseen=description.task is Task.MULTI_VECTOR)
    family = _load_family(description, op, layout)
    x = family.encode()
    if description.head is not None:
        x = apply_head(op, layout, family, description.head, x)
    logits = x
    for stage in description.stages:
        x = apply_stage(op, layout, stage, x)
    match description.row_form:
        case RowForm.SPARSE:
            return op.finish(*drop_zeros(op, carry_nan(op, layout, logits, x)))
        case RowForm.TOKEN:
            return op.model(x, "rows", ["tokens", description.dim])
        case RowForm.TEXT:
            return op.model(x, "rows", ["texts", description.dim])


def find_family(architecture: str) -> type[Family[Any]]:
    """The class that builds encoders of `architecture`, a key of `FAMILIES`."""
    module_name, _, class_name = FAMILIES[architecture].partition(":")
    return cast(type[Family[Any]], getattr(importlib.import_module(module_name), class_name))


def write_graph(model: ir.Model, path: Path) -> None:
    """Write the graph to `path` and its weights beside it, one tensor in memory at a time."""
    ir.save(model, path, external_data=f"{path.name}.weights")


def _load_family(description: ModelDescription, op: Ops, layout: Layout) -> Family[EncoderConfig]:
    family = find_family(description.architecture)
    return family(op, layout, description.encoder, Weights.open(*description.weights_files))
