"""Recording an ONNX graph by calling its operators.

`op.Gemm(x, w, b, transB=1)` adds a node and returns its value; weights stay where they are until
the graph is written.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from vecmill.models.weights import StoredTensor

# Opset 21 and later ran 13-18% slower on the same graph; this pair is the newest that does not.
OPSET = 20
IR_VERSION = 9


class Ops:
    """One graph being recorded."""

    def __init__(self) -> None:
        self._tape = ir.tape.Tape()
        self._inputs: list[ir.Value] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], ir.Value] = {}

    def __getattr__(self, operator: str) -> Callable[..., ir.Value]:
        """The operator of that name: inputs go by position (`None` skips one), attributes by keyword."""
        if not operator[:1].isupper():
            raise AttributeError(operator)

        def add(*inputs: ir.Value | None, **attributes: Any) -> ir.Value:
            return self._tape.op(operator, inputs, attributes)

        return add

    def input(self, name: str, shape: Sequence[int | str]) -> ir.Value:
        """An int64 input; a dimension given by name is free."""
        value = ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(ir.DataType.INT64))
        self._inputs.append(value)
        return value

    def constant(self, value: npt.ArrayLike, dtype: npt.DTypeLike = np.int64) -> ir.Value:
        """A constant that is written into the graph; equal ones are shared."""
        array = np.asarray(value, dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            tensor = ir.tensor(array, name=f"constant_{len(self._constants)}")
            self._constants[key] = self._tape.initializer(tensor)
        return self._constants[key]

    def weight(self, tensor: StoredTensor) -> ir.Value:
        """A tensor of the model, read only when the graph is written."""
        lazy = ir.LazyTensor(
            lambda: ir.tensor(tensor.read()),
            dtype=ir.DataType.FLOAT,
            shape=ir.Shape(tensor.shape),
            name=tensor.name,
        )
        return self._tape.initializer(lazy)

    def model(self, output: ir.Value, name: str, shape: Sequence[int | str]) -> ir.Model:
        """Finish the graph: what was recorded, ending in the float32 `output`."""
        output.name = name
        output.type = ir.TensorType(ir.DataType.FLOAT)
        output.shape = ir.Shape(shape)
        graph = ir.Graph(
            self._inputs,
            [output],
            nodes=self._tape.nodes,
            initializers=self._tape.initializers,
            opset_imports={"": OPSET},
            name="encoder",
        )
        return ir.Model(graph, ir_version=IR_VERSION, producer_name="vecmill")
