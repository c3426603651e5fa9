"""Calls on an accelerator that do not wait for it: pinned memory, a stream for copies, captured graphs.

A call is sent, computed and read. Its inputs are copied on a stream of their own while an earlier call
computes. Its outputs are copied into pinned memory right behind the computation, and only the lane of the
call waits for them, without Python's lock:

    lane 1            send  compute ............ read
    lane 2                  send  compute .................. read
    stream of copies  inputs 1  inputs 2
    stream of calls         call 1, outputs 1  call 2, outputs 2

A captured call (a CUDA graph) is one launch for all of its kernels. It reads and writes memory of its own, at
addresses that were fixed when it was captured. So its inputs are copied there on the stream of calls, behind
the call before it.

`DeviceCalls` is all that a call needs of a device. Tests record its events on the processor.

Source: "CUDA semantics" of torch's notes: streams, CUDA graphs, pinned memory.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

from vecmill.engines.torch.replica import Program
from vecmill.values.aliases import IntArray

# Maps the outputs of a program to those that are read, without the rows of padding.
Choose = Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]

# The first runs choose kernels and allocate workspaces, which a capture must not do.
WARM_RUNS = 2


@dataclass(frozen=True, slots=True)
class Sent:
    """Inputs on the device, which may still be on their way: `arrived` is what a stream waits for."""

    tensors: Sequence[torch.Tensor]
    arrived: Any


@dataclass(frozen=True, slots=True)
class Running:
    """A call that computes: its outputs in memory of the processor, which have values after `finished`."""

    outputs: Sequence[torch.Tensor]
    finished: Any


class DeviceCalls(Protocol):
    """What calls need of a device. One thread at a time computes or captures; any number send and read."""

    def send(self, arrays: Sequence[IntArray]) -> Sent:
        """Begin to copy the arrays to the device."""
        ...

    def compute(self, program: Program, sent: Sent, choose: Choose) -> Running:
        """Begin to compute the outputs for inputs that were sent, and to copy those that `choose` returns."""
        ...

    def read(self, running: Running) -> Sequence[torch.Tensor]:
        """Wait for the outputs. Raises what the call raised on the device."""
        ...

    def capture(self, program: Program, arrays: Sequence[IntArray]) -> Program:
        """Return a program that replays this one for inputs of the shapes of `arrays`.

        Its outputs are overwritten by the next replay. Raises `torch.OutOfMemoryError`, or another error of
        the device.
        """
        ...

    def captured_bytes(self) -> int:
        """Return the bytes of the device that captured programs hold."""
        ...


class CudaCalls:
    """The calls of one GPU of NVIDIA or AMD. Never run on a GPU of AMD.

    While a call is captured, a synchronisation of the whole device by another thread fails, and ends the
    capture. So no two captures of a process run at once.
    """

    _CAPTURING: ClassVar[Lock] = Lock()

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._copies = torch.cuda.Stream(device)
        self._calls = torch.cuda.Stream(device)
        # Captured graphs share their memory: none computes while another does.
        self._pool = torch.cuda.graph_pool_handle()

    def send(self, arrays: Sequence[IntArray]) -> Sent:
        packed = torch.from_numpy(np.concatenate([array.reshape(-1) for array in arrays])).pin_memory()
        with torch.cuda.stream(self._copies):
            there = packed.to(self._device, non_blocking=True)
            arrived = self._copies.record_event()
        # The call reads them until it has ended, and its caller keeps them until then.
        parts = there.split([array.size for array in arrays])
        return Sent([part.view(array.shape) for part, array in zip(parts, arrays, strict=True)], arrived)

    def compute(self, program: Program, sent: Sent, choose: Choose) -> Running:
        with torch.cuda.stream(self._calls):
            self._calls.wait_event(sent.arrived)
            try:
                return self._launch(program, sent, choose)
            except BaseException:
                # The caller drops the inputs now, which kernels may still read.
                self._calls.synchronize()
                raise

    def _launch(self, program: Program, sent: Sent, choose: Choose) -> Running:
        outputs = []
        for chosen in choose(program(sent.tensors)):
            output = torch.empty(chosen.shape, dtype=chosen.dtype, pin_memory=True)
            outputs.append(output.copy_(chosen, non_blocking=True))
        finished = torch.cuda.Event(blocking=True)
        finished.record(self._calls)
        return Running(outputs, finished)

    def read(self, running: Running) -> Sequence[torch.Tensor]:
        running.finished.synchronize()
        # Whoever keeps an answer keeps no pinned memory.
        return [output.clone() for output in running.outputs]

    def capture(self, program: Program, arrays: Sequence[IntArray]) -> Program:
        graph = torch.cuda.CUDAGraph()
        with self._CAPTURING, torch.cuda.stream(self._calls):
            inputs = [torch.from_numpy(array).to(self._device) for array in arrays]
            for _ in range(WARM_RUNS):
                program(inputs)
            self._calls.synchronize()
            # Not by `torch.cuda.graph`, which synchronises the device and empties its cache each time. Other
            # threads may copy and allocate meanwhile.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                outputs = program(inputs)
            finally:
                graph.capture_end()
        return replay_into(inputs, graph.replay, outputs)

    def captured_bytes(self) -> int:
        segments = torch.cuda.memory_snapshot(self._pool, include_traces=False)
        return sum(int(segment["total_size"]) for segment in segments)


def replay_into(
    inputs: Sequence[torch.Tensor], replay: Callable[[], object], outputs: Sequence[torch.Tensor]
) -> Program:
    """Return a program that copies what it is given into `inputs`, replays, and returns `outputs`."""

    def call(tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        for own, given in zip(inputs, tensors, strict=True):
            own.copy_(given)
        replay()
        return outputs

    return call
