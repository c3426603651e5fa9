"""Records an ONNX graph by calls of its operators.

`op.Gemm(x, w, b, transB=1)` adds a node and returns its value. Weights are read only when the graph is
written. `op.choose` and `op.stack_results` record nodes in the subgraphs of a branch and of a loop, which use
values of the surrounding graph like their own.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from vecmill.models.weights import StoredTensor

# The newest versions without a slowdown: opset 21 and later ran 13-18% slower on the same graph.
OPSET = 20
IR_VERSION = 9

RUNTIME_DOMAIN = "com.microsoft"
"""The domain of ONNX Runtime's own operators, and here of those of the torch engine."""

_16_BIT_TYPES = {"F16": ir.DataType.FLOAT16, "BF16": ir.DataType.BFLOAT16}
# ONNX Runtime's own operator for attention. Without a mask it is flash attention.
FLASH_OPERATOR = "MultiHeadAttention"
# The torch engine's own operator for attention over the texts of a batch side by side, without padding.
# Inputs: queries, keys and values by position, `Layout.text_starts`, and a length that no text exceeds.
# Attributes: `scale`; `heads` of queries and `shared` of keys; `before` and `after`, the window, -1 for none.
PACKED_OPERATOR = "PackedAttention"
# The dimensions of the heads that its kernels have.
PACKED_MULTIPLE, MOST_PACKED = 8, 256


@dataclass(frozen=True, slots=True)
class GraphOutput:
    """An output of a graph: its value, name and shape, and whether it is int64 or float32."""

    value: ir.Value
    name: str
    shape: tuple[int | str, ...]
    is_integer: bool = False


class Kept(Enum):
    """The weights that a graph keeps in 16 bits, if the model's files have 16 bits; others become float32.

    The graph converts what it reads of them to float32, so its outputs are the same to the bit. A row of a
    table costs next to nothing to convert, a matrix as much as about 20 tokens cost to multiply with it.
    """

    NOTHING = "nothing"
    TABLES = "tables"
    EVERYTHING = "everything"


# The key of a weight's metadata that holds its `FilePlace`, if a file holds it as the graph needs it.
PLACE = "place"


class Ops:
    """The recorder of one graph, which keeps the weights `kept` in 16 bits.

    `runtime_operators` are the operators of one runtime alone that the graph may have.
    """

    def __init__(self, kept: Kept = Kept.NOTHING, runtime_operators: Collection[str] = ()) -> None:
        self._kept = kept
        self._runtime_operators = frozenset(runtime_operators)
        self._tape = ir.tape.Tape()  # of the subgraph that is being recorded
        self._whole = self._tape  # of the whole graph, which holds the constants and weights of all subgraphs
        self._domains = {"": OPSET}
        self._subgraphs = 0
        self._inputs: list[ir.Value] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], ir.Value] = {}
        self._16_bits: dict[str, ir.Value] = {}

    def __getattr__(self, operator: str) -> Callable[..., ir.Value]:
        """Return a function that adds `operator`, with inputs (`None` if omitted) and keyword attributes."""
        if not operator[:1].isupper():
            raise AttributeError(operator)

        def add(*inputs: ir.Value | None, **attributes: Any) -> ir.Value:
            while inputs and inputs[-1] is None:
                inputs = inputs[:-1]  # OpenVINO rejects a missing input at the end
            return self._tape.op(operator, inputs, attributes)

        return add

    @property
    def has_flash(self) -> bool:
        """Whether the graph may have attention without a mask as one operator."""
        return self.has_runtime(FLASH_OPERATOR)

    def has_runtime(self, operator: str) -> bool:
        """Return whether the graph may have this operator of one runtime alone."""
        return operator in self._runtime_operators

    def add_runtime(self, operator: str, *inputs: ir.Value, **attributes: Any) -> ir.Value:
        """Add an operator of one runtime alone, which `has_runtime` allows, and return its value."""
        assert self.has_runtime(operator), operator
        self._domains[RUNTIME_DOMAIN] = 1
        return self._tape.op(operator, inputs, attributes, domain=RUNTIME_DOMAIN)

    def slice(self, x: ir.Value, start: int, stop: int, *, axis: int) -> ir.Value:
        """Return `x[..., start:stop, ...]` along `axis`."""
        bounds = (self.constant([bound]) for bound in (start, stop, axis))
        return self.Slice(x, *bounds)

    def top_values(self, x: ir.Value, count: int) -> ir.Value:
        """Return the `count` largest numbers of each row, largest first: (n, width) to (n, count)."""
        attributes = {"axis": 1, "largest": 1, "sorted": 1}
        values, _ = self._tape.op_multi_out("TopK", [x, self.constant([count])], attributes, num_outputs=2)
        return values

    def input(
        self, name: str, shape: Sequence[int | str], dtype: ir.DataType = ir.DataType.INT64
    ) -> ir.Value:
        """Add an input, by default int64; a dimension given by name is dynamic."""
        value = ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(dtype))
        self._inputs.append(value)
        return value

    def constant(self, value: npt.ArrayLike, dtype: npt.DTypeLike = np.int64) -> ir.Value:
        """Return a constant of the graph; equal constants are shared."""
        array = np.asarray(value, dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            tensor = ir.Tensor(array, name=f"constant_{len(self._constants)}")
            self._constants[key] = self._whole.initializer(tensor)
        return self._constants[key]

    def weight(self, tensor: StoredTensor) -> ir.Value:
        """Return the value of a model's tensor, float32. It is read only when the graph is written."""
        if self._kept is Kept.EVERYTHING and tensor.place is not None and tensor.place.has_16_bits:
            return self._whole.op("Cast", [self._keep(tensor)], {"to": ir.DataType.FLOAT})
        lazy = ir.LazyTensor(
            lambda: ir.Tensor(tensor.read()),
            dtype=ir.DataType.FLOAT,
            shape=ir.Shape(tensor.shape),
            name=tensor.name,
        )
        if tensor.place is not None and not tensor.place.has_16_bits:
            lazy.meta[PLACE] = tensor.place
        return self._whole.initializer(lazy)

    def keeps_table(self, tensor: StoredTensor) -> bool:
        """Return whether `look_up` reads rows of the tensor in 16 bits."""
        return self._kept is not Kept.NOTHING and tensor.place is not None and tensor.place.has_16_bits

    def look_up(self, table: StoredTensor, indices: ir.Value) -> ir.Value:
        """Return rows of a table of which the graph keeps 16 bits, float32."""
        return self.Cast(self.Gather(self._keep(table), indices), to=ir.DataType.FLOAT)

    def _keep(self, tensor: StoredTensor) -> ir.Value:
        """Return the value of a tensor in the 16 bits of its file; equal names share one value."""
        place = tensor.place
        assert place is not None
        if tensor.name not in self._16_bits:
            lazy = ir.LazyTensor(
                lambda: ir.Tensor(place.map(tensor.shape)),
                dtype=_16_BIT_TYPES[place.kind],
                shape=ir.Shape(tensor.shape),
                name=f"{tensor.name} in 16 bits",
            )
            lazy.meta[PLACE] = place
            self._16_bits[tensor.name] = self._whole.initializer(lazy)
        return self._16_bits[tensor.name]

    def choose(
        self,
        condition: ir.Value,
        one: Callable[[], ir.Value],
        other: Callable[[], ir.Value],
        dtype: ir.DataType = ir.DataType.FLOAT,
    ) -> ir.Value:
        """Return the value that `one` adds if `condition` (bool) is true, else that of `other`.

        Only the nodes of the chosen value are computed.
        """
        branches = [
            self._record(lambda add=add: [_typed(add(), dtype)], [])  # type: ignore[misc]
            for add in (one, other)
        ]
        return self.If(condition, then_branch=branches[0], else_branch=branches[1])

    def stack_results(self, count: ir.Value, add: Callable[[ir.Value], ir.Value]) -> ir.Value:
        """Return the float32 results of `add` for 0, 1, ... `count` - 1, (count, ...), computed in turn.

        `add` adds the nodes of one result and is called once, with the number of the result, int64. All
        results have one shape.
        """
        number = ir.Value(type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([]))
        goes_on = ir.Value(type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([]))

        def add_all() -> list[ir.Value]:
            still = self.Identity(goes_on)
            still.type = goes_on.type
            return [still, add(number)]

        body = self._record(add_all, [number, goes_on])
        return self.Loop(count, self.constant(True, np.bool_), body=body)

    def _record(self, add: Callable[[], list[ir.Value]], inputs: Sequence[ir.Value]) -> ir.Graph:
        """Return the subgraph of the nodes that `add` adds, with the values that `add` returns as outputs."""
        outside, self._tape = self._tape, ir.tape.Tape()
        self._subgraphs += 1
        prefix = f"subgraph_{self._subgraphs}"
        try:
            outputs = add()
            nodes = self._tape.nodes
        finally:
            self._tape = outside
        for value in outputs:
            value.type = value.type or ir.TensorType(ir.DataType.FLOAT)
        # A name of a subgraph must not occur in the graphs around it.
        results = [value for node in nodes for value in node.outputs]
        for index, value in enumerate([*inputs, *results]):
            value.name = f"{prefix}_{index}"
        return ir.Graph(inputs, outputs, nodes=nodes, name=prefix)

    def model(self, output: ir.Value, name: str, shape: Sequence[int | str]) -> ir.Model:
        """Finish the graph with the float32 `output`."""
        return self.finish(GraphOutput(output, name, tuple(shape)))

    def finish(self, *outputs: GraphOutput) -> ir.Model:
        """Finish the graph with `outputs`."""
        for output in outputs:
            kind = ir.DataType.INT64 if output.is_integer else ir.DataType.FLOAT
            output.value.name = output.name
            output.value.type = ir.TensorType(kind)
            output.value.shape = ir.Shape(output.shape)
        graph = ir.Graph(
            self._inputs,
            [output.value for output in outputs],
            nodes=self._tape.nodes,
            initializers=self._tape.initializers,
            opset_imports=self._domains,
            name="encoder",
        )
        return ir.Model(graph, ir_version=IR_VERSION, producer_name="vecmill")


def _typed(value: ir.Value, dtype: ir.DataType) -> ir.Value:
    value.type = value.type or ir.TensorType(dtype)
    return value


def soft_cap(op: Ops, x: ir.Value, cap: float) -> ir.Value:
    """Return `x` bounded smoothly to the range from minus `cap` to `cap`."""
    bound = op.constant(cap, np.float32)
    return op.Mul(op.Tanh(op.Div(x, bound)), bound)


def activate(op: Ops, x: ir.Value, name: str) -> ir.Value:
    """Apply the activation `name`, one of `models.config_fields.ACTIVATIONS`."""
    match name:
        case "linear":
            return x
        case "relu":
            return op.Relu(x)
        case "sigmoid":
            return op.Sigmoid(x)
        case "tanh":
            return op.Tanh(x)
        case "silu" | "swish":
            return op.Mul(x, op.Sigmoid(x))
        case "quick_gelu":
            return op.Mul(x, op.Sigmoid(op.Mul(x, op.constant(1.702, np.float32))))
        case "gelu_fast" | "gelu_new" | "gelu_python_tanh" | "gelu_pytorch_tanh":
            return op.Gelu(x, approximate="tanh")
        case _:
            return op.Gelu(x)
