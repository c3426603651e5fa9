"""A model's graph as a torch program without branches, used by both eager and compiled torch.

Every operator becomes one call of a function of `operators`, in order:

- Values that depend on weights and constants alone are computed once and stored.
- Attention (`attention`) becomes one call.
- Weights of products and embedding tables are stored in the precision of the plan. All other operators, such
  as sums, norms, softmax and pooling, compute in float32, as in torch's autocast.

Shapes depend on the inputs alone (`engines.indices`), so a compiler can compile the program as a whole.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import fx

from vecmill.engines.torch.attention import ATTENTION, join_attention
from vecmill.engines.torch.operators import OPERATORS, attend
from vecmill.errors import UnsupportedModel
from vecmill.graphs.steps import Step, Steps

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
_MULTIPLYING = ("MatMul", ATTENTION)


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
    if step.operator not in OPERATORS:
        raise UnsupportedModel(f"The torch engine does not compute the operator {step.operator}.")
    return OPERATORS[step.operator]
