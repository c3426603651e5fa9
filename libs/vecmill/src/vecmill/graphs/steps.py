"""Converts a finished graph to a list of operators, for an engine that runs them itself.

Such an engine needs no ONNX library.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from vecmill.values.aliases import FloatArray

# The operator of `graphs.finish` that reads the sparse weights. From there on shapes depend on data.
_DROPS_ZEROS = "GatherND"


@dataclass(frozen=True, slots=True)
class Step:
    """One ONNX operator: its name, the names of its inputs (`None` if omitted) and of its only output."""

    operator: str
    inputs: tuple[str | None, ...]
    output: str
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Steps:
    """The operators of a graph in order of computation; `outputs` are the names of its outputs.

    `inputs` are the names of its inputs in order, each with the names of its axes. `constants` are arrays of
    the graph, `weights` functions that read the arrays of the model.
    """

    inputs: Mapping[str, tuple[str, ...]]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Any]
    weights: Mapping[str, Callable[[], FloatArray]]


def list_steps(model: ir.Model) -> Steps:
    """Return the steps of `model`. A sparse model has one output, its weights with their zeros."""
    names = _name_values(model)
    steps = [_read_step(node, names) for node in model.graph]
    dropped = next((step for step in steps if step.operator == _DROPS_ZEROS), None)
    outputs = tuple(names[value] for value in model.graph.outputs)
    if dropped is not None:
        outputs = (str(dropped.inputs[0]),)
    needed = keep_needed(steps, outputs)
    read = {name for step in needed for name in step.inputs if name is not None}
    stored = {names[value]: value.const_value for value in model.graph.initializers.values()}
    lazy = {name: tensor for name, tensor in stored.items() if isinstance(tensor, ir.LazyTensor)}
    return Steps(
        inputs={names[value]: _axes_of(value) for value in model.graph.inputs if names[value] in read},
        steps=needed,
        outputs=outputs,
        constants={
            name: tensor.numpy()
            for name, tensor in stored.items()
            if name in read and name not in lazy and tensor is not None
        },
        weights={name: tensor.numpy for name, tensor in lazy.items() if name in read},
    )


def _name_values(model: ir.Model) -> dict[ir.Value, str]:
    """Return a unique name for each value."""
    names = {value: str(value.name) for value in model.graph.initializers.values()}
    names |= {value: str(value.name) for value in model.graph.inputs}
    results = [value for node in model.graph for value in node.outputs]
    return names | {value: f"value_{number}" for number, value in enumerate(results)}


def _axes_of(value: ir.Value) -> tuple[str, ...]:
    return tuple(str(axis) for axis in value.shape or ())


def _read_step(node: ir.Node, names: Mapping[ir.Value, str]) -> Step:
    inputs = tuple(None if value is None else names[value] for value in node.inputs)
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    return Step(node.op_type, inputs, names[node.outputs[0]], attributes)


def keep_needed(steps: Sequence[Step], outputs: Sequence[str]) -> tuple[Step, ...]:
    """Return those of `steps` that `outputs` depend on, in order."""
    needed, kept = {*outputs}, []
    for step in reversed(steps):
        if step.output in needed:
            needed |= {name for name in step.inputs if name is not None}
            kept.append(step)
    return tuple(reversed(kept))
