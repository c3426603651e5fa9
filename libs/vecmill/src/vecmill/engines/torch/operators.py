"""The ONNX operators of vecmill's graphs, implemented in torch.

Values that depend on shapes alone are Python integers and tuples of integers, so that a compiler sees shapes
instead of tensors that hold shapes. The functions accept both kinds of values where both occur.

Source: the ONNX operator specifications, opset 20.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from torch.nn import functional

Shape: TypeAlias = tuple[int, ...]
# An input or output of a step: a tensor, a shape or a number.
Value: TypeAlias = torch.Tensor | Shape | int | float

_HEAD_AXES = 4

_DTYPES: Mapping[int, torch.dtype] = {
    1: torch.float32,
    7: torch.int64,
    9: torch.bool,
}  # the numbers of ONNX's `TensorProto.DataType`


def gemm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *, transB: int = 0
) -> torch.Tensor:
    """Return `x @ weight.T + bias` as float32, multiplied in the dtype of `weight`."""
    matrix = weight if transB else weight.T
    return functional.linear(x.to(weight.dtype), matrix, bias).float()


def gather(data: torch.Tensor, indices: Value, *, axis: int = 0) -> torch.Tensor:
    """Return the entries of `data` at `indices` along `axis`, in the shape of `indices`."""
    if isinstance(indices, int):
        return data.select(axis, indices)
    assert isinstance(indices, torch.Tensor)
    if axis == 0 and data.ndim == 2:
        return functional.embedding(indices, data)
    found = data.index_select(axis, indices.reshape(-1))
    return found.reshape(*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])


def gather_elements(data: torch.Tensor, indices: torch.Tensor, *, axis: int = 0) -> torch.Tensor:
    """Return for each index the entry of `data` at that place along `axis`, at its own along the others."""
    return data.gather(axis, indices)


def reshape(x: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Return `x` in another shape, where 0 keeps an axis and -1 is inferred."""
    return x.reshape(
        [x.shape[axis] if type(size) is int and size == 0 else size for axis, size in enumerate(shape)]
    )


def unsqueeze(x: torch.Tensor, axes: Sequence[int]) -> torch.Tensor:
    """Return `x` with new axes of size 1."""
    for axis in sorted(axes):
        x = x.unsqueeze(axis)
    return x


def slice_axes(
    x: torch.Tensor, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None = None
) -> torch.Tensor:
    """Return `x[..., start:end, ...]` along each of `axes`."""
    for axis, start, end in zip(axes or range(len(starts)), starts, ends, strict=True):
        x = x[(slice(None),) * axis + (slice(start, end),)]
    return x


def concatenate(*parts: Any, axis: int) -> Value:
    """Concatenate tensors along `axis`, or join shapes."""
    if all(isinstance(part, tuple) for part in parts):
        return sum(parts, ())
    return torch.cat(parts, dim=axis)


def layer_norm(
    x: torch.Tensor,
    scale: torch.Tensor,
    shift: torch.Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
) -> torch.Tensor:
    """Apply layer normalisation over the last axis, in the precision of `scale`.

    `x` may be rows of a table that is stored in fewer bits. GPUs do not take the two precisions together.
    """
    assert axis == -1
    return functional.layer_norm(x.to(scale.dtype), scale.shape, scale, shift, epsilon)


def matmul(one: torch.Tensor, other: torch.Tensor, *, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Multiply matrices: attention heads (texts, heads, rows, columns) in `dtype`, others in float32."""
    if one.ndim == _HEAD_AXES:
        return torch.matmul(one.to(dtype), other.to(dtype)).float()
    return torch.matmul(one.float(), other.float())  # an embedding table is stored in the plan's precision


def transpose(x: torch.Tensor, *, perm: Sequence[int]) -> torch.Tensor:
    """Return `x` with its axes in the order `perm`."""
    return x.permute(tuple(perm))


def softmax(x: torch.Tensor, *, axis: int) -> torch.Tensor:
    """Apply softmax along `axis`."""
    return torch.softmax(x, axis)


def shape_of(x: torch.Tensor) -> Shape:
    """Return the sizes of all axes."""
    return tuple(x.shape)


def size_of(x: torch.Tensor) -> int:
    """Return the number of entries."""
    return int(x.numel())


def conv1d(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, group: int, pads: Sequence[int]
) -> torch.Tensor:
    """Convolve (texts, channels, length) along the last axis, in the precision of `weight`."""
    before, after = pads
    assert before == after
    x = x.to(weight.dtype)
    if x.is_cuda and x.dtype is torch.float32:
        return convolve_by_product(x, weight, bias, group=group, padding=before)
    return functional.conv1d(x, weight, bias, padding=before, groups=group).float()


def convolve_by_product(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, group: int, padding: int
) -> torch.Tensor:
    """Convolve along the last axis by a matrix product.

    cuDNN computes convolutions of float32 in TF32, which has 10 bits of a fraction, unless the whole process
    forbids it. Matrix products are computed in float32.
    """
    windows = functional.pad(x, (padding, padding)).unfold(-1, weight.shape[-1], 1)
    grouped = windows.unflatten(1, (group, -1))  # (texts, groups, channels, length, kernel)
    product = torch.einsum("ngclk,gock->ngol", grouped, weight.unflatten(0, (group, -1)))
    return product.flatten(1, 2) + bias[:, None]


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor,
    *,
    scale: float,
    heads: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Compute softmax attention over (rows, heads, n, dim), in `dtype`, and return float32.

    `bias` is added to the scaled scores. With grouped queries there are `heads` of them, and the query is
    (rows, key heads, heads / key heads * n, dim).
    """
    grouped = query.shape
    if heads is not None:
        query = query.reshape(grouped[0], heads, -1, grouped[3])
        key, value = (part.repeat_interleave(heads // grouped[1], 1) for part in (key, value))
    if dtype != torch.float32:
        # The bias of a masked key must stay finite.
        bias = bias.clamp(min=torch.finfo(dtype).min).to(dtype)
    attended = functional.scaled_dot_product_attention(
        query.to(dtype), key.to(dtype), value.to(dtype), attn_mask=bias, scale=scale
    ).float()
    return attended.reshape(*grouped[:3], attended.shape[3])


def attend_packed(  # noqa: PLR0913  an operator's inputs, and its attributes by name
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    starts: torch.Tensor,
    longest: int,
    *,
    scale: float,
    heads: int,
    shared: int,
    before: int,
    after: int,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Compute softmax attention over texts side by side, (positions, heads * dim), in `dtype`, as float32.

    Keys and values have `shared` heads. Text t has the positions from `starts[t]` to `starts[t + 1]`, at most
    `longest`. Its tokens attend to at most `before` tokens before them and `after` tokens after them; -1 is
    no limit. Positions after the last text have any value.
    """
    query = query.to(dtype).unflatten(1, (heads, -1))
    key, value = (part.to(dtype).unflatten(1, (shared, -1)) for part in (key, value))
    if heads != shared:
        key, value = (part.repeat_interleave(heads // shared, 1) for part in (key, value))
    if not query.is_cuda:
        return _attend_text_by_text(query, key, value, starts, scale, (before, after)).flatten(1).float()
    # Its kernels compute in 16 bits alone.
    from torch.nn.attention.varlen import varlen_attn

    bounds = starts.to(torch.int32)
    attended = varlen_attn(
        query, key, value, bounds, bounds, longest, longest, scale=scale, window_size=(before, after)
    )
    return attended.flatten(1).float()


def _attend_text_by_text(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    starts: torch.Tensor,
    scale: float,
    window: tuple[int, int],
) -> torch.Tensor:
    """Compute the attention of one text after the other, for devices without the kernel."""
    attended = torch.full_like(query, torch.nan)  # as the kernel leaves what belongs to no text
    for start, end in pairwise(starts.tolist()):
        if start == end:  # a text that is padding
            continue
        queries, keys, values = (part[start:end].transpose(0, 1) for part in (query, key, value))
        places = torch.arange(end - start)
        distance = places - places[:, None]
        is_key = torch.ones_like(distance, dtype=torch.bool)
        for limit, ahead in zip(window, (-distance, distance), strict=True):
            if limit >= 0:
                is_key &= ahead <= limit
        found = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=is_key, scale=scale)
        attended[start:end] = found.transpose(0, 1)
    return attended


def cast(x: torch.Tensor, *, to: int) -> torch.Tensor:
    """Return `x` in the dtype with the ONNX number `to`."""
    return x.to(_DTYPES[int(to)])


def _reduction(compute: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return a function that applies `compute` along `axes`."""

    def reduce(x: torch.Tensor, axes: Sequence[int], *, keepdims: int = 1) -> torch.Tensor:
        return compute(x, dim=tuple(axes), keepdim=bool(keepdims))

    return reduce


def top_values(
    x: torch.Tensor, count: Value, *, axis: int, largest: int = 1, sorted: int = 1
) -> torch.Tensor:
    """Return the `count` largest numbers along `axis`, largest first; the second output is not used."""
    assert largest
    assert sorted
    (number,) = _entries(count)
    return x.topk(int(number), dim=axis).values


def argmax(x: torch.Tensor, *, axis: int, keepdims: int = 1) -> torch.Tensor:
    """Return the index of the first maximum along `axis`."""
    return x.argmax(axis, keepdim=bool(keepdims))


def _elementwise(compute: Callable[[Any, Any], Any]) -> Callable[[Value, Value], Value]:
    """Return a function that applies `compute` to tensors and numbers, and to shapes entry by entry."""

    def apply(one: Value, other: Value) -> Value:
        if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
            return compute(_operand(one), _operand(other))
        if isinstance(one, tuple) or isinstance(other, tuple):
            ones, others = _entries(one), _entries(other)
            size = max(len(ones), len(others))
            ones, others = (values * size if len(values) == 1 else values for values in (ones, others))
            return tuple(compute(a, b) for a, b in zip(ones, others, strict=True))
        return compute(one, other)

    return apply


def _entries(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _operand(value: Value) -> Any:
    """Return `value` as an operand for a tensor: a tensor or a number."""
    if isinstance(value, tuple):
        (number,) = value
        return number
    return value


def _smaller(one: Any, other: Any) -> Any:
    if isinstance(other, torch.Tensor):
        return torch.minimum(one, other) if isinstance(one, torch.Tensor) else other.clamp(max=one)
    return one.clamp(max=other) if isinstance(one, torch.Tensor) else min(one, other)


def _larger(one: Any, other: Any) -> Any:
    if isinstance(other, torch.Tensor):
        return torch.maximum(one, other) if isinstance(one, torch.Tensor) else other.clamp(min=one)
    return one.clamp(min=other) if isinstance(one, torch.Tensor) else max(one, other)


OPERATORS: Mapping[str, Callable[..., Any]] = {
    "Abs": torch.abs,
    "Add": _elementwise(operator.add),
    "And": torch.logical_and,
    "ArgMax": argmax,
    "Cast": cast,
    "Clip": torch.clamp,
    "Concat": concatenate,
    "Conv": conv1d,
    "Cos": torch.cos,
    "CumSum": torch.cumsum,
    "Div": _elementwise(operator.truediv),
    "Equal": _elementwise(operator.eq),
    "Expand": torch.broadcast_to,
    "Gather": gather,
    "GatherElements": gather_elements,
    "Gelu": functional.gelu,
    "Gemm": gemm,
    "Greater": _elementwise(operator.gt),
    "GreaterOrEqual": _elementwise(operator.ge),
    "LayerNormalization": layer_norm,
    "Less": _elementwise(operator.lt),
    "LessOrEqual": _elementwise(operator.le),
    "Log": torch.log,
    "MatMul": matmul,
    "Max": _elementwise(_larger),
    "Min": _elementwise(_smaller),
    "Mul": _elementwise(operator.mul),
    "Not": torch.logical_not,
    "Or": torch.logical_or,
    "Pow": torch.pow,
    "Range": torch.arange,
    "ReduceL2": _reduction(torch.linalg.vector_norm),
    "ReduceMax": _reduction(torch.amax),
    "ReduceMean": _reduction(torch.mean),
    "ReduceSum": _reduction(torch.sum),
    "Relu": torch.relu,
    "Reshape": reshape,
    "Shape": shape_of,
    "Sigmoid": torch.sigmoid,
    "Sin": torch.sin,
    "Size": size_of,
    "Slice": slice_axes,
    "Softmax": softmax,
    "Sqrt": torch.sqrt,
    "Squeeze": torch.squeeze,
    "Sub": _elementwise(operator.sub),
    "Tanh": torch.tanh,
    "TopK": top_values,
    "Transpose": transpose,
    "Unsqueeze": unsqueeze,
    "Where": torch.where,
}
"""The function of each ONNX operator; `program` adds the function of joined attention."""
