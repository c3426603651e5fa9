"""Adds the stages between the encoder's last hidden state and the outputs.

The rules are those of sentence-transformers 6.2 (`base/modules/dense.py`, `base/modules/normalize.py`,
`sentence_transformer/modules/pooling.py`, `layer_norm.py` and `weighted_layer_pooling.py`,
`sparse_encoder/modules/splade_pooling.py` and `sparse_auto_encoder.py`), also for texts without tokens to
pool.
"""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from vecmill.graphs.batch_layout import Layout
from vecmill.graphs.ops import Ops, activate
from vecmill.models.stages import (
    TORCH_EPSILON,
    Dense,
    DenseActivation,
    LayerNorm,
    Normalize,
    OwnPooling,
    Pooling,
    PoolingMode,
    SparseAutoEncoder,
    Splade,
    Stage,
    Truncate,
    WeightedLayers,
)
from vecmill.models.weights import Weights

_SMALLEST_COUNT = 1e-9  # the smallest divisor of a mean in sentence-transformers
LAYER_WEIGHTS = "layer_weights"
_AUTOENCODER_MATRIX = "encoder.weight"
# The decoder has the same matrix transposed. safetensors has it under one name, and PyTorch's files under
# both, of which sentence-transformers reads this one last.
_TIED_MATRIX = "decoder.linear.weight"


def apply_stage(op: Ops, layout: Layout, stage: Stage, x: ir.Value) -> ir.Value:
    """Add one stage to `x`: (positions, width) before pooling, (texts, width) after it.

    Raises `CorruptModel` if a stage's weights are broken or do not fit its settings.
    """
    match stage:
        case Pooling():
            return pool(op, layout, x, stage)
        case Dense():
            return _apply_dense(op, stage, x)
        case LayerNorm():
            return _apply_layer_norm(op, stage, x)
        case Normalize():
            return normalize(op, x)
        case Splade():
            return _pool_logits(op, layout, stage, x)
        case SparseAutoEncoder():
            return _encode_sparsely(op, stage, x)
        case WeightedLayers() | OwnPooling():
            raise ValueError(f"{type(stage).__name__} needs the encoder, and is not built here.")
        case Truncate():
            return op.Slice(x, op.constant([0]), op.constant([stage.width]), op.constant([1]))


# The keys of the sizes of a matrix, in config.json of the modules.
_SIZES = ("out_features or dim", "in_features or dimension")


def _weight(op: Ops, file: Path, name: str, *shape: int) -> ir.Value:
    keys = dict(zip(_SIZES, shape, strict=False))
    tensor = Weights.open(file, asked_by=keys).tensor(name, shape)
    # Stages of a kind have the same tensor names, so the folder makes them unique.
    return op.weight(dataclasses.replace(tensor, name=f"{file.parent.name}.{name}"))


def _apply_dense(op: Ops, dense: Dense, x: ir.Value) -> ir.Value:
    shape = (dense.outputs, dense.inputs)
    bias = _weight(op, dense.file, "linear.bias", dense.outputs) if dense.bias else None
    product = op.Gemm(x, _weight(op, dense.file, "linear.weight", *shape), bias, transB=1)
    is_linear = dense.activation is DenseActivation.IDENTITY
    out = activate(op, product, "linear" if is_linear else dense.activation.lower())
    if not dense.residual:
        return out
    if dense.inputs != dense.outputs:
        x = op.Gemm(x, _weight(op, dense.file, "residual.weight", *shape), None, transB=1)
    return op.Add(out, x)


def _apply_layer_norm(op: Ops, norm: LayerNorm, x: ir.Value) -> ir.Value:
    scale, shift = (_weight(op, norm.file, f"norm.{part}", norm.width) for part in ("weight", "bias"))
    return op.LayerNormalization(x, scale, shift, axis=-1, epsilon=TORCH_EPSILON)


def list_autoencoder_shapes(stage: SparseAutoEncoder) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors of an autoencoder, the matrix first, by their names in its file.

    Raises the same errors as `Weights.open`.
    """
    matrix = _TIED_MATRIX if _TIED_MATRIX in Weights.open(stage.file) else _AUTOENCODER_MATRIX
    return {matrix: (stage.width, stage.inputs), "latent_bias": (stage.width,), "pre_bias": (stage.inputs,)}


def _encode_sparsely(op: Ops, stage: SparseAutoEncoder, x: ir.Value) -> ir.Value:
    shapes = list_autoencoder_shapes(stage)
    matrix, bias, before = (_weight(op, stage.file, name, *shape) for name, shape in shapes.items())
    if stage.normalize:
        x = _standardize(op, x, stage.inputs)
    latents = op.Gemm(op.Sub(x, before), matrix, bias, transB=1)
    # `TopK` may ignore NaN, depending on its position; the result must not look valid.
    doubt = op.Mul(op.ReduceSum(latents, op.constant([1]), keepdims=1), op.constant(0, np.float32))
    return op.Add(_keep_largest(op, latents, stage.active), doubt)


def _standardize(op: Ops, x: ir.Value, width: int) -> ir.Value:
    """Return `x` (n, width) with a mean of 0 and a deviation of 1 in each row; `width` is above 1."""
    axis = op.constant([1])
    centred = op.Sub(x, op.ReduceMean(x, axis, keepdims=1))
    squares = op.ReduceSum(op.Mul(centred, centred), axis, keepdims=1)
    deviation = op.Sqrt(op.Div(squares, op.constant(width - 1, np.float32)))
    return op.Div(centred, op.Add(deviation, op.constant(TORCH_EPSILON, np.float32)))


def _keep_largest(op: Ops, x: ir.Value, count: int) -> ir.Value:
    """Return `x` (n, width) with zeros for all but the `count` largest numbers above 0 of each row.

    Of equal numbers the first are kept.
    """
    axis = op.constant([1])
    least = op.slice(op.top_values(x, count), count - 1, count, axis=1)
    above, equal = op.Greater(x, least), op.Equal(x, least)
    larger = op.ReduceSum(op.Cast(above, to=ir.DataType.FLOAT), axis, keepdims=1)
    place = op.Add(op.CumSum(op.Cast(equal, to=ir.DataType.FLOAT), op.constant(1)), larger)
    has_room = op.LessOrEqual(place, op.constant(count, np.float32))
    kept = op.Or(above, op.And(equal, has_room))
    return op.Where(kept, op.Relu(x), op.constant(0, np.float32))


def weigh_layers(op: Ops, stage: WeightedLayers, layers: Sequence[ir.Value]) -> ir.Value:
    """Return the weighted mean of the hidden states of layers, each (positions, width).

    `layers` are all of them, beginning with the input of the first layer. Raises `CorruptModel` if the
    stage's weights are broken or do not fit its settings.
    """
    weights = _weight(op, stage.file, LAYER_WEIGHTS, stage.count)
    chosen = layers[stage.first :]
    assert len(chosen) == stage.count
    parts = [op.Mul(x, op.slice(weights, index, index + 1, axis=0)) for index, x in enumerate(chosen)]
    return op.Div(functools.reduce(op.Add, parts), op.ReduceSum(weights, op.constant([0]), keepdims=1))


def _pool_logits(op: Ops, layout: Layout, splade: Splade, logits: ir.Value) -> ir.Value:
    if not splade.add_up:
        # `_saturate` is monotonic, and an empty slot repeats a token of its text, so neither changes the
        # maximum.
        return _saturate(op, splade, op.ReduceMax(layout.by_text(logits), op.constant([1]), keepdims=0))
    counted = op.Unsqueeze(op.Cast(layout.is_token, to=ir.DataType.FLOAT), op.constant([1]))
    sums = op.MatMul(counted, layout.by_text(_saturate(op, splade, logits)))
    return op.Squeeze(sums, op.constant([1]))


def _saturate(op: Ops, splade: Splade, logits: ir.Value) -> ir.Value:
    one = op.constant(1, np.float32)
    weights = op.Log(op.Add(op.Relu(logits), one))
    return op.Log(op.Add(weights, one)) if splade.twice else weights


def pool(op: Ops, layout: Layout, hidden: ir.Value, pooling: Pooling) -> ir.Value:
    """Pool `hidden` (positions, width) to (texts, width * modes), float32."""
    pooled = [_pool_one(op, layout, hidden, pooling, mode) for mode in pooling.modes]
    return pooled[0] if len(pooled) == 1 else op.Concat(*pooled, axis=1)


def normalize(op: Ops, x: ir.Value) -> ir.Value:
    """Scale embeddings (n, width), float32, to unit length; zeros stay zeros."""
    length = op.ReduceL2(x, op.constant([1]), keepdims=1)
    return op.Div(x, op.Max(length, op.constant(1e-12, np.float32)))


def _pool_one(op: Ops, layout: Layout, hidden: ir.Value, pooling: Pooling, mode: PoolingMode) -> ir.Value:
    match mode:
        case PoolingMode.CLS:
            return layout.read_at(hidden, lambda: _first_slots(op, layout, pooling))
        case PoolingMode.LAST_TOKEN:
            return _pool_last(op, layout, hidden, pooling)
        case PoolingMode.MAX:
            return _pool_max(op, layout, hidden, pooling)
        case PoolingMode.MEAN:
            sums, counts = _add_up(op, layout, hidden, _counted(op, layout, pooling))
            return op.Div(sums, counts)
        case PoolingMode.MEAN_SQRT_LEN:
            sums, counts = _add_up(op, layout, hidden, _counted(op, layout, pooling))
            return op.Div(sums, op.Sqrt(counts))
        case PoolingMode.WEIGHTED_MEAN:
            # The n-th token has weight n; the numbering includes the prompt's tokens.
            numbers = op.Cast(op.Add(layout.slots, op.constant(1)), to=ir.DataType.FLOAT)
            sums, counts = _add_up(op, layout, hidden, op.Mul(_counted(op, layout, pooling), numbers))
            return op.Div(sums, counts)


def _after_prompt(op: Ops, layout: Layout) -> ir.Value:
    """Return whether a text has tokens after its prompt: (texts,), bool."""
    return op.Less(layout.prompt_lengths, layout.lengths)


def find_pooled_slots(op: Ops, layout: Layout, pooling: Pooling) -> ir.Value | None:
    """Return the slot of the only token of each text that is pooled, (texts,) int64, or `None`."""
    match pooling.modes:
        case (PoolingMode.CLS,):
            return _first_slots(op, layout, pooling)
        case (PoolingMode.LAST_TOKEN,):
            return op.Sub(layout.lengths, op.constant([1]))
    return None


def _first_slots(op: Ops, layout: Layout, pooling: Pooling) -> ir.Value:
    first = op.Mul(layout.prompt_lengths, op.constant(0))
    if not pooling.include_prompt:
        # For a text without tokens after its prompt, sentence-transformers takes the first token.
        first = op.Where(_after_prompt(op, layout), layout.prompt_lengths, first)
    return first


def _pool_last(op: Ops, layout: Layout, hidden: ir.Value, pooling: Pooling) -> ir.Value:
    last = layout.read_at(hidden, lambda: op.Sub(layout.lengths, op.constant([1])))
    if pooling.include_prompt:
        return last
    # sentence-transformers returns zeros for a text without tokens after its prompt.
    has_token = op.Unsqueeze(_after_prompt(op, layout), op.constant([1]))
    return op.Where(has_token, last, op.constant(0, np.float32))


def _pool_max(op: Ops, layout: Layout, hidden: ir.Value, pooling: Pooling) -> ir.Value:
    by_text = layout.by_text(hidden)
    if not pooling.include_prompt:
        # sentence-transformers returns minus infinity for a text without tokens after its prompt. Such an
        # embedding is never sent.
        counted = op.Unsqueeze(_is_counted(op, layout, pooling), op.constant([2]))
        by_text = op.Where(counted, by_text, op.constant(-np.inf, np.float32))
    # An empty slot repeats a token of the same text, which never changes the maximum.
    return op.ReduceMax(by_text, op.constant([1]), keepdims=0)


def _is_counted(op: Ops, layout: Layout, pooling: Pooling) -> ir.Value:
    """Return whether a slot is pooled: (texts, longest), bool."""
    if pooling.include_prompt:
        return layout.is_token
    prompt_lengths = op.Unsqueeze(layout.prompt_lengths, op.constant([1]))
    return op.And(layout.is_token, op.GreaterOrEqual(layout.slots, prompt_lengths))


def _counted(op: Ops, layout: Layout, pooling: Pooling) -> ir.Value:
    return op.Cast(_is_counted(op, layout, pooling), to=ir.DataType.FLOAT)


def _add_up(op: Ops, layout: Layout, hidden: ir.Value, weights: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return weighted sums of tokens (texts, width) and the sums of weights (texts, 1), never 0."""
    # A matrix product needs no masked copy of the tokens.
    sums = op.MatMul(op.Unsqueeze(weights, op.constant([1])), layout.by_text(hidden))
    totals = op.ReduceSum(weights, op.constant([1]), keepdims=1)
    smallest = op.constant(_SMALLEST_COUNT, np.float32)
    return op.Squeeze(sums, op.constant([1])), op.Max(totals, smallest)
