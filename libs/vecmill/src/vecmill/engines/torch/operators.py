"""The operators of ONNX that our graphs use, in torch.

What a graph computes of shapes alone stays with Python, as whole numbers and tuples of them: so a compiler
that follows the program sees shapes, not tensors that hold shapes. Functions take either where both occur.

Source: the ONNX operator specifications, opset 20.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import torch
from torch.nn import functional

Shape: TypeAlias = tuple[int, ...]
# What a step reads or gives: a tensor, or something of a shape.
Value: TypeAlias = torch.Tensor | Shape | int | float

_HEAD_AXES = 4

_DTYPES: Mapping[int, torch.dtype] = MappingProxyType(
    {1: torch.float32, 7: torch.int64, 9: torch.bool}  # the numbers of ONNX's `TensorProto.DataType`
)


def gemm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *, transB: int = 0
) -> torch.Tensor:
    """`x @ weight.T + bias`, multiplied as `weight` is and given as float32."""
    matrix = weight if transB else weight.T
    return functional.linear(x.to(weight.dtype), matrix, bias).float()


def look_up(data: torch.Tensor, indices: Value, *, axis: int = 0) -> torch.Tensor:
    """Entries of `data` along `axis`, in the shape of `indices`."""
    if isinstance(indices, int):
        return data.select(axis, indices)
    assert isinstance(indices, torch.Tensor)
    if axis == 0 and data.ndim == 2:
        return functional.embedding(indices, data)
    found = data.index_select(axis, indices.reshape(-1))
    return found.reshape(*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])


def reshape(x: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """`x` in another shape, where 0 keeps an axis and -1 is what is left."""
    return x.reshape(
        [x.shape[axis] if type(size) is int and size == 0 else size for axis, size in enumerate(shape)]
    )


def unsqueeze(x: torch.Tensor, axes: Sequence[int]) -> torch.Tensor:
    """`x` with new axes of one entry."""
    for axis in sorted(axes):
        x = x.unsqueeze(axis)
    return x


def squeeze(x: torch.Tensor, axes: Sequence[int]) -> torch.Tensor:
    """`x` without axes of one entry."""
    return x.squeeze(tuple(axes))


def cut(
    x: torch.Tensor, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None = None
) -> torch.Tensor:
    """`x[..., start:end, ...]` along each of `axes`."""
    for axis, start, end in zip(axes or range(len(starts)), starts, ends, strict=True):
        x = x[(slice(None),) * axis + (slice(start, end),)]
    return x


def concatenate(*parts: Any, axis: int) -> Value:
    """Tensors side by side, or shapes one after the other."""
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
    """Layer normalisation over the last axis."""
    assert axis == -1
    return functional.layer_norm(x, scale.shape, scale, shift, epsilon)


def multiply(one: torch.Tensor, other: torch.Tensor, *, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The product of matrices: of heads (texts, heads, rows, columns) as `dtype`, of others in full."""
    if one.ndim == _HEAD_AXES:
        return torch.matmul(one.to(dtype), other.to(dtype)).float()
    return torch.matmul(one.float(), other.float())  # a table of rows is kept in the plan's precision


def transpose(x: torch.Tensor, *, perm: Sequence[int]) -> torch.Tensor:
    """`x` with its axes in another order."""
    return x.permute(tuple(perm))


def softmax(x: torch.Tensor, *, axis: int) -> torch.Tensor:
    """Shares that sum to 1 along `axis`."""
    return torch.softmax(x, axis)


def where(condition: torch.Tensor, one: Any, other: Any) -> torch.Tensor:
    """`one` where the condition holds, else `other`."""
    return torch.where(condition, one, other)


def shape_of(x: torch.Tensor) -> Shape:
    """The sizes of all axes."""
    return tuple(x.shape)


def size_of(x: torch.Tensor) -> int:
    """How many entries there are."""
    return int(x.numel())


def gelu(x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    """The Gaussian error linear unit."""
    return functional.gelu(x, approximate=approximate)


def convolve(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, group: int, pads: Sequence[int]
) -> torch.Tensor:
    """Convolution along the last axis."""
    before, after = pads
    assert before == after
    return functional.conv1d(x.to(weight.dtype), weight, bias, padding=before, groups=group).float()


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor,
    *,
    scale: float,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Softmax attention over (texts, heads, longest, dim), multiplied as `dtype` and given as float32.

    `bias` is added to the scaled scores. With fewer heads of keys, the queries of a group lie one after
    the other: (texts, shared, n * longest, dim).
    """
    texts, shared, longest, dim = key.shape
    rows = query.shape
    if rows[2] != longest:
        query = query.reshape(texts, -1, longest, dim)
        groups = query.shape[1] // shared
        key, value = (part.repeat_interleave(groups, 1) for part in (key, value))
    if dtype != torch.float32:
        # What stands for a key that is not there must not become infinite.
        bias = bias.clamp(min=torch.finfo(dtype).min).to(dtype)
    attended = functional.scaled_dot_product_attention(
        query.to(dtype), key.to(dtype), value.to(dtype), attn_mask=bias, scale=scale
    ).float()
    return attended.reshape(*rows[:3], attended.shape[3])


def cast(x: torch.Tensor, *, to: int) -> torch.Tensor:
    """`x` as numbers of another kind."""
    return x.to(_DTYPES[int(to)])


def count_up(start: int, end: int, step: int, *, device: torch.device) -> torch.Tensor:
    """`start`, `start + step` and so on, below `end`."""
    return torch.arange(start, end, step, device=device)


def reduce_max(x: torch.Tensor, axes: Sequence[int] | None = None, *, keepdims: int = 1) -> torch.Tensor:
    """The largest along `axes`."""
    assert axes is not None
    return x.amax(tuple(axes), keepdim=bool(keepdims))


def reduce_sum(x: torch.Tensor, axes: Sequence[int], *, keepdims: int = 1) -> torch.Tensor:
    """The sum along `axes`."""
    return x.sum(tuple(axes), keepdim=bool(keepdims))


def reduce_mean(x: torch.Tensor, axes: Sequence[int], *, keepdims: int = 1) -> torch.Tensor:
    """The mean along `axes`."""
    return x.mean(tuple(axes), keepdim=bool(keepdims))


def reduce_l2(x: torch.Tensor, axes: Sequence[int], *, keepdims: int = 1) -> torch.Tensor:
    """The root of the sum of squares along `axes`."""
    return torch.linalg.vector_norm(x, dim=tuple(axes), keepdim=bool(keepdims))


def _of_either(compute: Callable[[Any, Any], Any]) -> Callable[[Value, Value], Value]:
    """`compute` for tensors and numbers, and for shapes entry by entry."""

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
    """What a tensor can be added to: a tensor or a number."""
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


OPERATORS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "Add": _of_either(operator.add),
        "And": torch.logical_and,
        "Cast": cast,
        "Clip": torch.clamp,
        "Concat": concatenate,
        "Conv": convolve,
        "Cos": torch.cos,
        "CumSum": torch.cumsum,
        "Div": _of_either(operator.truediv),
        "Equal": _of_either(operator.eq),
        "Expand": torch.broadcast_to,
        "Gather": look_up,
        "Gelu": gelu,
        "Gemm": gemm,
        "Greater": _of_either(operator.gt),
        "GreaterOrEqual": _of_either(operator.ge),
        "LayerNormalization": layer_norm,
        "Less": _of_either(operator.lt),
        "LessOrEqual": _of_either(operator.le),
        "Log": torch.log,
        "MatMul": multiply,
        "Max": _of_either(_larger),
        "Min": _of_either(_smaller),
        "Mul": _of_either(operator.mul),
        "Not": torch.logical_not,
        "Pow": torch.pow,
        "Range": count_up,
        "ReduceL2": reduce_l2,
        "ReduceMax": reduce_max,
        "ReduceMean": reduce_mean,
        "ReduceSum": reduce_sum,
        "Relu": torch.relu,
        "Reshape": reshape,
        "Shape": shape_of,
        "Sigmoid": torch.sigmoid,
        "Sin": torch.sin,
        "Size": size_of,
        "Slice": cut,
        "Softmax": softmax,
        "Sqrt": torch.sqrt,
        "Squeeze": squeeze,
        "Sub": _of_either(operator.sub),
        "Tanh": torch.tanh,
        "Transpose": transpose,
        "Unsqueeze": unsqueeze,
        "Where": where,
    }
)
"""What each operator is here; `program` adds those that it makes of several."""
