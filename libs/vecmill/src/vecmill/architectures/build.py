"""Builds the whole graph of a model: encoder, head and stages."""

from collections.abc import Collection

import onnx_ir as ir

from vecmill.architectures.registry import find_graph_class
from vecmill.graphs.batch_layout import IndexedLayout, LayoutOptions, RaggedLayout
from vecmill.graphs.encoder import EncoderGraph
from vecmill.graphs.finish import finish_graph, finish_sparse
from vecmill.graphs.last_tokens import LastTokens
from vecmill.graphs.ops import PACKED_OPERATOR, Kept, Ops
from vecmill.graphs.shared_layout import SharedLayout
from vecmill.graphs.stages import find_pooled_slots, weigh_layers
from vecmill.models.description import ModelDescription
from vecmill.models.encoder_config import EncoderConfig
from vecmill.models.heads import Head, HeadKind
from vecmill.models.model_weights import open_weights
from vecmill.models.stages import Pooling
from vecmill.models.weights import Weights
from vecmill.values.embeddings import OutputShape
from vecmill.values.task import Task

# Vocabulary entries whose logits a sparse model computes at once: few enough for memory, enough for a fast
# matrix product.
VOCABULARY_COLUMNS = 4096


def build_graph(
    description: ModelDescription,
    layout_class: type[RaggedLayout] | type[IndexedLayout] = RaggedLayout,
    *,
    in_blocks: bool = False,
    runtime_operators: Collection[str] = (),
    reads_last_tokens: bool = False,
    kept: Kept = Kept.NOTHING,
    weights: Weights | None = None,
) -> ir.Model:
    """Build the graph from token ids to the model's outputs.

    Inputs are those of `layout_class`, where a model that shares positions has a `SharedLayout` for an
    `IndexedLayout`. The output `rows`, float32, is (texts, dim), or (tokens, dim) for a
    model with an output for each token. A sparse model has the outputs of `finish_sparse`, an embedding model
    those of `finish_graph`. Weights are read when the graph is written. With `in_blocks`, attention of a long
    text runs in blocks, and a long text must be alone in its batch (`graphs.softmax_attention`).
    `runtime_operators` are the runtime's own operators that the graph may have; with `PACKED_OPERATOR`, texts
    share no positions. With `reads_last_tokens` the last layer computes those tokens alone that are read of
    it (`graphs.last_tokens`), and an embedding model has the input `wants_tokens`, () int64: 1 if an output
    of tokens is read, else 0. `kept` are the weights that stay in 16 bits. `weights` are by default those of
    the model's files. Raises `CorruptModel` if the weights do not fit the settings, `UnsupportedModel` if the
    architecture has no such head.
    """
    op = Ops(kept, runtime_operators)
    shares_prefixes = description.shares_prefixes and PACKED_OPERATOR not in runtime_operators
    if layout_class is IndexedLayout and shares_prefixes:
        layout_class = SharedLayout
    options = LayoutOptions(
        most_unseen=description.most_unseen,
        has_long=in_blocks and description.has_long_texts,
        has_heads=description.token_heads is not None,
        patch_values=description.encoder.patch_values,
    )
    layout = layout_class(op, options)
    weights = open_weights(description) if weights is None else weights
    encoder = find_graph_class(description.encoder)(op, layout, description.encoder, weights)
    if reads_last_tokens and encoder.computes_last_tokens:
        layout.last_tokens = _find_last_tokens(encoder, description)
    x = encoder.encode()
    if description.weighted_layers is not None:
        x = weigh_layers(op, description.weighted_layers, encoder.layers)
    if description.pools_itself:
        return finish_graph(op, layout, description, encoder.pool(x), hidden=x)
    if description.output_shape is OutputShape.SPARSE:
        has_head = description.head is not None
        parts = encoder.predict_parts(x, VOCABULARY_COLUMNS) if has_head else iter([x])
        return finish_sparse(op, layout, description, parts)
    if description.head is not None:
        x = _apply_head(encoder, description.head, x)
    return finish_graph(op, layout, description, x)


def _find_last_tokens(
    encoder: EncoderGraph[EncoderConfig], description: ModelDescription
) -> LastTokens | None:
    """Return the tokens of the last layer, if the model reads one token of each text."""
    op, layout, head = encoder.op, encoder.layout, description.head
    if description.output_shape is not OutputShape.TEXT or description.weighted_layers is not None:
        return None
    slots = None
    if description.pools_itself:
        slots = encoder.pooled_slots()
    elif head is None or head.kind is HeadKind.STAGES:
        pooling = next((stage for stage in description.graph_stages if isinstance(stage, Pooling)), None)
        slots = None if pooling is None else find_pooled_slots(op, layout, pooling)
    elif head.kind is HeadKind.YES_NO:
        slots = op.Sub(layout.lengths, op.constant([1]))
    elif head.kind in (HeadKind.SEQUENCE, HeadKind.SCORE):
        slots = encoder.classified_slots()
    if slots is None:
        return None
    wants_all = None
    if description.task is Task.EMBED:
        wants_all = op.Greater(op.input("wants_tokens", []), op.constant(0))
    return layout.choose_last(slots, wants_all)


def _apply_head(encoder: EncoderGraph[EncoderConfig], head: Head, hidden: ir.Value) -> ir.Value:
    """Add a head to `hidden` (positions, hidden_size). Return its logits, float32.

    `SEQUENCE`: (texts, labels). `TOKENS`: (positions, labels). `VOCABULARY`: (positions, vocab_size). `LIST`:
    (positions, width). `SCORE` and `YES_NO`: (texts, 1). `STAGES`: `hidden`, because the stages compute the
    logits. Raises `UnsupportedModel` if the architecture has no such head.
    """
    match head.kind:
        case HeadKind.SEQUENCE:
            return encoder.classify(hidden, len(head.labels))
        case HeadKind.LIST:
            return encoder.project_tokens(hidden)
        case HeadKind.SCORE:
            return encoder.classify(hidden, 1)
        case HeadKind.TOKENS:
            return encoder.classify_tokens(hidden, len(head.labels))
        case HeadKind.VOCABULARY:
            return encoder.predict_tokens(hidden)
        case HeadKind.STAGES:
            return hidden
        case HeadKind.YES_NO:
            return _yes_no_logit(encoder, head, hidden)


def _yes_no_logit(encoder: EncoderGraph[EncoderConfig], head: Head, hidden: ir.Value) -> ir.Value:
    """Return the logit of "yes" after the last token, minus that of "no" if there is one: (texts, 1)."""
    op, layout = encoder.op, encoder.layout
    last = layout.read_at(hidden, lambda: op.Sub(layout.lengths, op.constant([1])))
    logits = encoder.predict_chosen(last, head.token_ids)
    yes, *rest = (op.slice(logits, index, index + 1, axis=1) for index in range(len(head.token_ids)))
    return op.Sub(yes, rest[0]) if rest else yes
