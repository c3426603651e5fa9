"""A replica of the model on one device: copies of inputs and outputs, and the handling of device errors.

Indices are sent in one copy from pinned memory, so that the processor need not wait. Three kinds of errors
are handled differently:

- Out of memory: the batch is too large, and the caller may divide it.
- Device lost: after some errors (an illegal address, an assertion on the device) every later operation of
  the process on this device fails. So after an error a small operation is tried; if this operation fails,
  `DeviceLost` is raised, which ends the lane.
- Any other error is caused by the batch.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import torch

from vecmill.engines.session_calls import ModelCall
from vecmill.errors import DeviceLost, InferenceFailed
from vecmill.values.aliases import FloatArray, IntArray
from vecmill.values.batch import Batch
from vecmill.values.embeddings import Output, OutputShape
from vecmill.values.positions import BatchShape, Positions, index_batch, refuse_unknown_tokens

logger = logging.getLogger(__name__)

# Maps the input tensors of a batch, in order, to dense outputs, in the order of `Output`.
Program = Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]
Outputs = list[Any]


@dataclass(frozen=True, slots=True)
class ShapeRounding:
    """The rounding of a program's input shapes: a multiple for text lengths, and a minimum for all sizes."""

    length_multiple: int = 1
    min_size: int = 1

    def round(self, shape: BatchShape) -> BatchShape:
        """Return `shape` rounded up."""
        rounded = shape.rounded(longest=self.length_multiple)
        return BatchShape(*(max(size, self.min_size) for size in astuple(rounded)))


class IndexedProgram:
    """A program on `device` whose inputs are the arrays of `values.positions` with the names `inputs`.

    Token ids must be below `token_count`. With `shares_prefixes`, texts that begin with the same tokens share
    positions.
    """

    def __init__(
        self,
        program: Program,
        inputs: Sequence[str],
        device: torch.device,
        *,
        output_shape: OutputShape,
        token_count: int,
        rounding: ShapeRounding,
        shares_prefixes: bool,
    ) -> None:
        self._program = program
        self._inputs = tuple(inputs)
        self._device = device
        self._output_shape = output_shape
        self._token_count = token_count
        self._rounding = rounding
        self._shares_prefixes = shares_prefixes

    def __call__(self, batch: Batch) -> Outputs:
        """Compute the outputs for `batch`. Raises `ValueError` for an unknown token id."""
        refuse_unknown_tokens(batch, self._token_count)
        positions = Positions.of(batch, shares_prefixes=self._shares_prefixes)
        shape = self._rounding.round(BatchShape.of(batch, positions))
        indices = index_batch(batch, positions, shape, self._inputs)
        found = self._program(send_arrays([indices[name] for name in self._inputs], self._device))
        selected = select_outputs(choose_outputs(found, batch), batch, self._output_shape)
        return read_outputs(selected, batch, self._output_shape)


class Replica:
    """A model on one device. `compute` runs on the device; `probe` raises if the device is lost."""

    def __init__(self, name: str, compute: ModelCall, probe: Callable[[], object]) -> None:
        self.name = name
        self._compute = compute
        self._probe = probe

    def run(self, batch: Batch) -> Outputs:
        """Compute the outputs for `batch`. Raises `DeviceLost`, or `InferenceFailed` for any other error."""
        try:
            return self._compute(batch)
        except Exception as error:
            failure = error
        size = f"{len(batch)} texts with {len(batch.token_ids)} tokens in total"
        if _is_out_of_memory(failure):  # the probe might fail too
            raise InferenceFailed(f"{self.name} ran out of memory on {size}.") from failure
        self._check_alive(failure)
        raise InferenceFailed(f"torch failed on {size}: {type(failure).__name__}.") from failure

    def _check_alive(self, failure: Exception) -> None:
        try:
            self._probe()
        except Exception as error:
            logger.error("%s no longer responds: %s", self.name, error)
            raise DeviceLost(f"{self.name} no longer responds. Restart the process.") from failure


def probe_device(device: torch.device) -> None:
    """Run a small operation on `device`. Raises if the device is lost; the CPU is never lost."""
    if device.type != "cpu":
        torch.ones(1, device=device).add_(1).item()


def send_arrays(arrays: Sequence[IntArray], device: torch.device) -> list[torch.Tensor]:
    """Copy the arrays to `device`.

    An accelerator gets all arrays in one asynchronous copy from pinned memory.
    """
    if device.type == "cpu":
        return [torch.from_numpy(array) for array in arrays]
    packed = torch.from_numpy(np.concatenate([array.reshape(-1) for array in arrays]))
    if device.type == "cuda":
        packed = packed.pin_memory()
    parts = packed.to(device, non_blocking=True).split([array.size for array in arrays])
    return [part.view(array.shape) for part, array in zip(parts, arrays, strict=True)]


def choose_outputs(outputs: Sequence[torch.Tensor], batch: Batch) -> list[torch.Tensor]:
    """Return the outputs that `batch` asks for. Raises `ValueError` if the program lacks one."""
    places = [tuple(Output).index(output) for output in batch.outputs]
    if max(places) >= len(outputs):
        raise ValueError(f"the program does not compute {', '.join(batch.outputs)}")
    return [outputs[place] for place in places]


def select_outputs(chosen: Sequence[torch.Tensor], batch: Batch, usual: OutputShape) -> list[torch.Tensor]:
    """Return what is read of the chosen outputs of `batch`, without the rows that belong to padding.

    `usual` is the shape of the usual output. Of a sparse output it is the weights, their columns and texts.
    """
    selected: list[torch.Tensor] = []
    for rows, shape in zip(chosen, batch.output_shapes(usual), strict=True):
        if shape is OutputShape.SPARSE:
            weights = rows[: len(batch)]
            texts, columns = indices = weights.ne(0).nonzero(as_tuple=True)
            selected += [weights[indices], columns, texts]
        else:
            selected.append(rows[: int(batch.row_counts(shape).sum())])
    return selected


def read_outputs(selected: Sequence[torch.Tensor], batch: Batch, usual: OutputShape) -> Outputs:
    """Read from the device what `select_outputs` returns for `batch`."""
    read: Outputs = []
    tensors = iter(selected)
    for shape in batch.output_shapes(usual):
        read.append(_to_numpy(next(tensors)))
        if shape is OutputShape.SPARSE:
            columns, texts = next(tensors).cpu().numpy(), next(tensors).cpu().numpy()
            read += [columns, np.bincount(texts, minlength=len(batch))]
    return read


def _to_numpy(values: torch.Tensor) -> FloatArray:
    return np.ascontiguousarray(values.cpu().numpy(), np.float32)


def _is_out_of_memory(error: Exception) -> bool:
    # On the CPU torch raises a plain RuntimeError.
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)
