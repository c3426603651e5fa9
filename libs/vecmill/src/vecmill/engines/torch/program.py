"""A model's graph as a torch program without branches, used by both eager and compiled torch.

Every operator becomes one call of a function of `operators`, in order:

- Values that depend on weights and constants alone are computed once and stored.
- Attention becomes one call. It is found by its products, scale, mask and softmax:
  MatMul(Softmax(Add(Mul(MatMul(query, Transpose(key)), scale), bias)), value). Decoders with grouped-query
  attention have a Reshape before and after the mask. The query heads of a group are one longer head.
- Weights of products and embedding tables are stored in the precision of the plan. All other operators, such
  as sums, norms, softmax and pooling, compute in float32, as in torch's autocast.

Shapes depend on the inputs alone (`values.positions`), so a compiler can compile the program as a whole.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import fx

from vecmill.engines.torch.operators import OPERATORS, attend, attend_packed
from vecmill.errors import UnsupportedModel
from vecmill.graphs.ops import PACKED_OPERATOR
from vecmill.graphs.steps import Step, Steps, keep_needed

ATTENTION = "Attention"
"""The operator of steps that `join_attention` makes.

Inputs: query, key, value, bias. Attributes: `scale`, and `heads`, the number of query heads if several share
their keys.
"""

# The inputs of operators that are settings instead of data; they are Python values.
_SETTINGS: Mapping[str, tuple[int, ...]] = {
    "Clip": (1, 2),
    "Concat": (0, 1, 2, 3),
    "CumSum": (1,),
    "Expand": (1,),
    "Range": (0, 1, 2),
    "ReduceL2": (1,),
    "ReduceMax": (1,),
    "ReduceMean": (1,),
    "ReduceSum": (1,),
    "Reshape": (1,),
    "Slice": (1, 2, 3),
    "Squeeze": (1,),
    "Unsqueeze": (1,),
}
# The inputs that are stored in the precision of the plan.
_STORED: Mapping[str, tuple[int, ...]] = {"Gemm": (1, 2), "Conv": (1, 2), "Gather": (0,)}
# Operators that multiply activations, and so take the precision as an argument.
_MULTIPLYING = ("MatMul", ATTENTION, PACKED_OPERATOR)


def make_program(steps: Steps, *, dtype: torch.dtype, device: torch.device) -> fx.GraphModule:
    """Return a module that maps the inputs of `steps`, in order, to the tuple of their outputs, float32.

    Raises `UnsupportedModel` for an unknown operator.
    """
    writer = _ProgramWriter(join_attention(steps), dtype, device)
    return writer.write()


class _ProgramWriter:
    """A program under construction. A value is a node of the program, a constant tensor or a number."""

    def __init__(self, steps: Steps, dtype: torch.dtype, device: torch.device) -> None:
        self._steps = steps
        self._dtype = dtype
        self._device = device
        self._graph = fx.Graph()
        self._root = torch.nn.Module()
        self._values: dict[str, Any] = {}
        self._stored: dict[tuple[str, torch.dtype], fx.Node] = {}

    def write(self) -> fx.GraphModule:
        """Write all steps and return the module."""
        for name in self._steps.inputs:
            self._values[name] = self._graph.placeholder(name)
        for step in self._steps.steps:
            self._values[step.output] = self._translate(step)
        self._graph.output(tuple(self._values[name] for name in self._steps.outputs))
        return fx.GraphModule(self._root, self._graph).eval()

    def _translate(self, step: Step) -> Any:
        compute = _find_operator(step)
        settings = dict(step.attributes)
        if step.operator in _MULTIPLYING:
            settings["dtype"] = self._dtype
        if step.operator == "Range":
            settings["device"] = self._device
        arguments = [self._read(step, place) for place in range(len(step.inputs))]
        if not any(isinstance(argument, fx.Node) for argument in arguments):
            return compute(*arguments, **settings)
        for place, argument in enumerate(arguments):
            if isinstance(argument, torch.Tensor):
                arguments[place] = self._store(step, place, argument)
        return self._graph.call_function(compute, tuple(arguments), settings)

    def _read(self, step: Step, place: int) -> Any:
        """Return input number `place` of `step`: a node, a weight, a constant or a number."""
        name = step.inputs[place]
        if name is None:
            return None
        if name in self._steps.weights:
            return torch.from_numpy(self._steps.weights[name]())
        if name not in self._steps.constants:
            return self._values[name]
        array = self._steps.constants[name]
        if place in _SETTINGS.get(step.operator, ()):
            return tuple(array.tolist()) if array.ndim else array.item()
        is_number = array.ndim == 0 or (array.size == 1 and step.operator != "Gather")
        return array.item() if is_number else torch.from_numpy(np.array(array))

    def _store(self, step: Step, place: int, tensor: torch.Tensor) -> fx.Node:
        """Return the node that reads `tensor`, which is stored once in each precision in use."""
        name = str(step.inputs[place])
        is_stored = place in _STORED.get(step.operator, ()) and tensor.is_floating_point()
        dtype = self._dtype if is_stored else tensor.dtype
        key = (name, dtype)
        if key not in self._stored:
            attribute = f"tensor_{len(self._stored)}"
            self._root.register_buffer(attribute, tensor.to(self._device, dtype))
            self._stored[key] = self._graph.get_attr(attribute)
        return self._stored[key]


def _find_operator(step: Step) -> Callable[..., Any]:
    if step.operator == ATTENTION:
        return attend
    if step.operator == PACKED_OPERATOR:
        return attend_packed
    if step.operator not in OPERATORS:
        raise UnsupportedModel(f"The torch engine does not compute the operator {step.operator}.")
    return OPERATORS[step.operator]


@dataclass(frozen=True, slots=True)
class _Producers:
    """The steps that produce values, and the number of steps that read each value."""

    steps: dict[str, Step]
    readers: Counter[str]

    def find(self, value: str | None, operator: str) -> Step | None:
        """Return the step that produces `value` if it is an `operator` and `value` is read once."""
        if value is None or self.readers[value] != 1:
            return None
        step = self.steps.get(value)
        return step if step is not None and step.operator == operator else None

    def skip(self, value: str | None, operator: str) -> str | None:
        """Return the first input of the step that produces `value` if it is an `operator`, else `value`."""
        step = self.find(value, operator)
        return value if step is None else step.inputs[0]


def join_attention(steps: Steps) -> Steps:
    """Return `steps` with each attention as one step."""
    readers = Counter(name for step in steps.steps for name in step.inputs if name is not None)
    producers = _Producers({step.output: step for step in steps.steps}, readers)
    joined = [_join(producers, steps, step) or step for step in steps.steps]
    return replace(steps, steps=keep_needed(joined, steps.outputs))


def _join(producers: _Producers, steps: Steps, product: Step) -> Step | None:
    """Return the attention step that replaces `product`, `None` if `product` does not end attention."""
    if product.operator != "MatMul":
        return None
    shares = producers.find(producers.skip(product.inputs[0], "Reshape"), "Softmax")
    masked = shares and producers.find(shares.inputs[0], "Add")
    scaled = masked and producers.find(producers.skip(masked.inputs[0], "Reshape"), "Mul")
    scores = scaled and producers.find(scaled.inputs[0], "MatMul")
    turned = scores and producers.find(scores.inputs[1], "Transpose")
    if not (masked and scaled and scores and turned):
        return None
    scale = steps.constants.get(str(scaled.inputs[1]))
    if scale is None or turned.attributes["perm"] != (0, 1, 3, 2):
        return None
    inputs = (scores.inputs[0], turned.inputs[0], product.inputs[1], masked.inputs[1])
    attributes = {"scale": scale.item()}
    split = producers.find(masked.inputs[0], "Reshape")
    if split is not None:
        attributes["heads"] = int(steps.constants[str(split.inputs[1])][1])
    return Step(ATTENTION, inputs, product.output, attributes)
