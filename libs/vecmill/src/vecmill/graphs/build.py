"""Building the whole graph of a model: encoder, stages, heads."""

import importlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from vecmill.graphs.family import Family
from vecmill.graphs.heads import apply_head, carry_nan, drop_zeros
from vecmill.graphs.layout import IndexedLayout, Layout, RaggedLayout
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

# Entries of the vocabulary whose logits a sparse model computes at once: few enough for memory, enough
# for a product of matrices to be fast.
VOCABULARY_COLUMNS = 4096


def build_graph(
    description: ModelDescription, layout_class: type[RaggedLayout] | type[IndexedLayout] = RaggedLayout
) -> ir.Model:
    """The graph from ragged token ids to finished rows.

    Inputs as `layout_class` says; output `rows`, float32: (texts, dim), (tokens, dim) of a model with a row
    for each token, or as `heads.drop_zeros` says of a sparse one. Weights are read when the graph is
    written. Raises `CorruptModel` if the weights do not fit the settings, `UnsupportedModel` if the family
    lacks the head.
    """
    op = Ops()
    layout = layout_class(op, has_unseen=description.task is Task.MULTI_VECTOR)
    family = _load_family(description, op, layout)
    x = family.encode()
    if description.row_form is RowForm.SPARSE:
        return _finish_sparse(op, layout, description, family.predict_parts(x, VOCABULARY_COLUMNS))
    if description.head is not None:
        x = apply_head(op, layout, family, description.head, x)
    return finish_graph(op, layout, description, x)


def finish_graph(op: Ops, layout: Layout, description: ModelDescription, logits: ir.Value) -> ir.Model:
    """Finish a graph with a model's stages, from what its encoder or head gives, as `build_graph` says."""
    match description.row_form:
        case RowForm.SPARSE:
            return _finish_sparse(op, layout, description, [logits])
        case RowForm.TOKEN:
            return op.model(
                _apply_stages(op, layout, description, logits), "rows", ["tokens", description.dim]
            )
        case RowForm.TEXT:
            return op.model(
                _apply_stages(op, layout, description, logits), "rows", ["texts", description.dim]
            )


def _finish_sparse(
    op: Ops, layout: Layout, description: ModelDescription, parts: Iterable[ir.Value]
) -> ir.Model:
    """Finish the graph of a sparse model from logits over parts of its vocabulary, side by side.

    Logits of 32 texts of 512 tokens over 250,000 entries take 16 GB. Each part is pooled before the next is
    computed, so what is in memory at a time are the logits of one part, and all rows.
    """
    rows = [carry_nan(op, layout, part, _apply_stages(op, layout, description, part)) for part in parts]
    return op.finish(*drop_zeros(op, op.Concat(*rows, axis=1)))


def _apply_stages(op: Ops, layout: Layout, description: ModelDescription, x: ir.Value) -> ir.Value:
    for stage in description.stages:
        x = apply_stage(op, layout, stage, x)
    return x


def find_family(architecture: str) -> type[Family[Any]]:
    """The class that builds encoders of `architecture`, a key of `FAMILIES`."""
    module_name, _, class_name = FAMILIES[architecture].partition(":")
    return cast(type[Family[Any]], getattr(importlib.import_module(module_name), class_name))


def drop_unused(model: ir.Model) -> ir.Model:
    """`model` without nodes that lead nowhere and inputs that nobody reads: some runtimes stumble on them."""
    RemoveUnusedNodesPass()(model)
    unread = [value for value in model.graph.inputs if not value.uses()]
    for value in unread:
        model.graph.inputs.remove(value)
    return model


def write_graph(model: ir.Model, path: Path) -> None:
    """Write the graph to `path` and its weights beside it, one tensor in memory at a time."""
    ir.save(model, path, external_data=f"{path.name}.weights")


def _load_family(description: ModelDescription, op: Ops, layout: Layout) -> Family[EncoderConfig]:
    family = find_family(description.architecture)
    return family(op, layout, description.encoder, Weights.open(*description.weights_files))
