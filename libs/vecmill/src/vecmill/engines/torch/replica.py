"""A program on one device: how a batch gets there, how rows come back, and what a failure means.

Indices go over in one copy, from pinned memory, so that the processor goes on meanwhile. Three things
can go wrong:

- There is not memory enough: the batch is divided, and later ones are no larger than what fitted. A text that
  does not fit alone fails.
- The device is lost. Some errors (an illegal address, an assertion on the device) leave a process without
  its device for good: whatever is asked of it next fails too. So after an error the device is asked for
  something small; if that fails, `DeviceLost` says so, which ends the lane.
- Anything else is about the batch.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from vecmill.engines.buckets import select_texts
from vecmill.engines.indices import Extent, index_batch, refuse_unknown_tokens
from vecmill.errors import DeviceLost, InferenceFailed
from vecmill.types import Batch, FloatArray, IntArray, RowForm

logger = logging.getLogger(__name__)

# From the tensors of a batch, in order, to its dense rows.
Program = Callable[[Sequence[torch.Tensor]], torch.Tensor]
Outputs = list[Any]

Computer = Callable[[Batch], Outputs]
"""Computes the outputs of a batch, as `engines.calls.make_rows` takes them. Raises as torch does."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """Multiples and least sizes of the shapes that a program is given."""

    longest: int = 1
    least: int = 1

    def extent(self, batch: Batch) -> Extent:
        """The shapes for `batch`."""
        rounded = Extent.of(batch).rounded(longest=self.longest)
        return Extent(
            *(max(size, self.least) for size in (rounded.positions, rounded.texts, rounded.longest))
        )


class IndexedProgram:
    """A program whose inputs are the arrays called `inputs`, of `engines.indices`, on `device`.

    Tokens are numbered below `token_count`.
    """

    def __init__(
        self,
        program: Program,
        inputs: Sequence[str],
        device: torch.device,
        *,
        form: RowForm,
        token_count: int,
        rounding: Rounding,
    ) -> None:
        self._program = program
        self._inputs = tuple(inputs)
        self._device = device
        self._form = form
        self._token_count = token_count
        self._rounding = rounding

    def __call__(self, batch: Batch) -> Outputs:
        """As `Computer`."""
        refuse_unknown_tokens(batch, self._token_count)
        indices = index_batch(batch, self._rounding.extent(batch))
        dense = self._program(send_arrays([indices[name] for name in self._inputs], self._device))
        return read_rows(dense, batch, self._form)


class Replica:
    """One device at work. `compute` runs there; `probe` raises if the device is lost."""

    def __init__(self, name: str, compute: Computer, probe: Callable[[], object]) -> None:
        self.name = name
        self._compute = compute
        self._probe = probe
        self._fitting_tokens: int | None = None  # no more than this has fitted into memory

    def run(self, batch: Batch) -> Outputs:
        """The outputs for `batch`. Raises `DeviceLost`, or `InferenceFailed` for anything else."""
        if not self._may_fit(batch):
            return self._run_halves(batch)
        try:
            return self._compute(batch)
        except Exception as error:
            failure = error
        if _is_out_of_memory(failure):
            return self._run_smaller(batch, failure)
        self._check_alive(failure)
        raise InferenceFailed(
            f"torch failed on {len(batch)} texts of {len(batch.token_ids)} tokens: {type(failure).__name__}."
        ) from failure

    def _may_fit(self, batch: Batch) -> bool:
        limit = self._fitting_tokens
        return limit is None or len(batch) == 1 or len(batch.token_ids) <= limit

    def _run_smaller(self, batch: Batch, failure: Exception) -> Outputs:
        tokens = len(batch.token_ids)
        if len(batch) == 1:
            raise InferenceFailed(
                f"{self.name} has not memory enough for a text of {tokens} tokens."
            ) from failure
        self._fitting_tokens = min(tokens // 2, self._fitting_tokens or tokens)
        logger.warning(
            "%s has not memory enough for %d tokens at once; from now on it gets %d at most.",
            self.name,
            tokens,
            self._fitting_tokens,
        )
        return self._run_halves(batch)

    def _run_halves(self, batch: Batch) -> Outputs:
        middle = len(batch) // 2
        halves = (range(middle), range(middle, len(batch)))
        outputs = [self.run(select_texts(batch, half)) for half in halves]
        return [np.concatenate(parts) for parts in zip(*outputs, strict=True)]

    def _check_alive(self, failure: Exception) -> None:
        try:
            self._probe()
        except Exception as error:
            logger.error("%s does not answer any more: %s", self.name, error)
            raise DeviceLost(f"{self.name} is lost to this process, which has to be restarted.") from failure


def probe_device(device: torch.device) -> None:
    """Ask `device` for something small. Raises if it is lost; the processor never is."""
    if device.type != "cpu":
        torch.ones(1, device=device).add_(1).item()


def send_arrays(arrays: Sequence[IntArray], device: torch.device) -> list[torch.Tensor]:
    """The arrays on `device`: for an accelerator in one copy from pinned memory, which nothing waits for."""
    if device.type == "cpu":
        return [torch.from_numpy(array) for array in arrays]
    packed = torch.from_numpy(np.concatenate([array.reshape(-1) for array in arrays]))
    if device.type == "cuda":
        packed = packed.pin_memory()
    parts = packed.to(device, non_blocking=True).split([array.size for array in arrays])
    return [part.view(array.shape) for part, array in zip(parts, arrays, strict=True)]


def read_rows(dense: torch.Tensor, batch: Batch, form: RowForm) -> Outputs:
    """The outputs of `batch` among `dense`, which may have more rows: those are left out."""
    if form is RowForm.TOKEN:
        return [_to_numpy(dense[: len(batch.token_ids)])]
    rows = dense[: len(batch)]
    if form is RowForm.TEXT:
        return [_to_numpy(rows)]
    places = rows.ne(0).nonzero(as_tuple=True)
    counts = np.bincount(places[0].cpu().numpy(), minlength=len(batch))
    return [_to_numpy(rows[places]), places[1].cpu().numpy(), counts]


def _to_numpy(values: torch.Tensor) -> FloatArray:
    return np.ascontiguousarray(values.cpu().numpy(), np.float32)


def _is_out_of_memory(error: Exception) -> bool:
    # Processors raise a plain RuntimeError.
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)
