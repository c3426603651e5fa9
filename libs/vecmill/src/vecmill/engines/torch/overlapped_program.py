"""A program on an accelerator whose calls overlap: one computes while another is prepared or read.

Two lanes call it at once. What a lane does on the processor (`values.positions`, the copies of `DeviceCalls`)
runs while the device computes the call of the other. The launches themselves take turns. Between calls, while
none waits for its turn, shapes are captured (`captured_shapes`).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Condition

import torch

from vecmill.engines.torch.captured_shapes import MOST_BYTES, CapturedShapes
from vecmill.engines.torch.device_calls import DeviceCalls
from vecmill.engines.torch.replica import (
    Outputs,
    Program,
    ShapeRounding,
    choose_outputs,
    read_outputs,
    select_outputs,
)
from vecmill.values.aliases import IntArray
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import OutputShape
from vecmill.values.positions import BatchShape, Positions, index_batch, refuse_unknown_tokens

CALLS = 2
"""The calls of one device that run at once."""


@dataclass(frozen=True, slots=True)
class ProgramInputs:
    """The inputs of a program: the arrays of `values.positions` with these `names`.

    Token ids must be below `token_count`. With `shares_prefixes`, texts that begin with the same tokens share
    positions.
    """

    names: tuple[str, ...]
    token_count: int
    rounding: ShapeRounding
    shares_prefixes: bool

    def index(self, batch: Batch, positions: Positions, shape: BatchShape) -> list[IntArray]:
        """Return the arrays in order, with the sizes of `shape`."""
        arrays = index_batch(batch, positions, shape, self.names)
        return [arrays[name] for name in self.names]


class OverlappedProgram:
    """A program with `inputs` on the device of `calls`. `shapes` are captured, the first first."""

    def __init__(
        self,
        program: Program,
        inputs: ProgramInputs,
        calls: DeviceCalls,
        *,
        output_shape: OutputShape,
        shapes: tuple[BatchShape, ...],
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._program = program
        self._inputs = inputs
        self._calls = calls
        self._output_shape = output_shape
        self._turns = _Turns()
        self._captured = CapturedShapes(shapes, self._capture, calls.captured_bytes, most_bytes=most_bytes)

    @property
    def shares_prefixes(self) -> bool:
        """Whether texts that begin with the same tokens share positions."""
        return self._inputs.shares_prefixes

    def __call__(self, batch: Batch) -> Outputs:
        """Compute the outputs for `batch`. Raises `ValueError` for an unknown token id."""
        inputs = self._inputs
        refuse_unknown_tokens(batch, inputs.token_count)
        positions = Positions.of(batch, shares_prefixes=inputs.shares_prefixes)
        needed = inputs.rounding.round(BatchShape.of(batch, positions))
        captured = self._captured.find(needed)
        shape, program = (needed, self._program) if captured is None else (captured.shape, captured.program)
        sent = self._calls.send(inputs.index(batch, positions, shape))

        def choose(outputs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
            return select_outputs(choose_outputs(outputs, batch), batch, self._output_shape)

        with self._turns.of_calls():
            running = self._calls.compute(program, sent, choose)
        return read_outputs(self._calls.read(running), batch, self._output_shape)

    def capture_next(self) -> bool:
        """Capture a shape when no call waits. Return whether there may be more."""
        with self._turns.between_calls():
            return self._captured.capture_next()

    def _capture(self, shape: BatchShape) -> Program:
        """Capture the call of a batch that fills a shape."""
        text = TokenSequence.of([0] * (shape.positions // shape.texts))
        batch = Batch.of([text] * shape.texts)
        positions = Positions.of(batch, shares_prefixes=False)
        return self._calls.capture(self._program, self._inputs.index(batch, positions, shape))


class _Turns:
    """The turns of threads at a device: captures wait until no call does."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._is_taken = False
        self._waiting_calls = 0

    @contextmanager
    def of_calls(self) -> Iterator[None]:
        """Wait for the turn of a call."""
        with self._changed:
            self._waiting_calls += 1
            self._changed.wait_for(lambda: not self._is_taken)
            self._waiting_calls -= 1
            self._is_taken = True
        try:
            yield
        finally:
            self._end()

    @contextmanager
    def between_calls(self) -> Iterator[None]:
        """Wait until the device is free and no call waits for it."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_taken and not self._waiting_calls)
            self._is_taken = True
        try:
            yield
        finally:
            self._end()

    def _end(self) -> None:
        with self._changed:
            self._is_taken = False
            self._changed.notify_all()
