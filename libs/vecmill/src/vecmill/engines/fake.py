"""An engine without a model, for tests: the embedding of a text or token is a hash of its token ids.

The embeddings are exact, so tests notice a swapped or lost embedding. A script makes calls fail, return
NaN, hang or lose their device.
"""

import hashlib
import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from vecmill.engines.base import EngineCapabilities
from vecmill.errors import DeviceLost, InferenceFailed
from vecmill.hardware.cores import lane_widths
from vecmill.values.aliases import FloatArray, IntArray
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import Embeddings, Output, OutputShape, SparseEmbedding
from vecmill.values.engine_plan import CostModel, EngineInfo, EnginePlan

if TYPE_CHECKING:
    from vecmill.models import ModelDescription


class Fault(StrEnum):
    """A fault in one engine call."""

    RAISE = "raise"  # an exception, as from a runtime
    NAN = "nan"  # an embedding of NaN
    SHORT = "short"  # one embedding too few
    MEMORY = "memory"  # no memory left
    HANG = "hang"  # no return before `FakeEngine.released` is set
    DIE = "die"  # `SystemExit`, as from code that means to end its thread
    DEVICE = "device"  # `DeviceLost`: the device no longer responds


@dataclass(frozen=True, slots=True)
class FaultScript:
    """The faults of a `FakeEngine`.

    A call with a token id of `poison` raises. A text with a token id of `nan` gets an embedding of NaN
    values. `calls` maps call numbers, from 0, to faults. Any other call raises with probability `share`,
    drawn from `seed`.
    """

    poison: frozenset[int] = frozenset()
    nan: frozenset[int] = frozenset()
    calls: Mapping[int, Fault] = field(default_factory=dict)
    share: float = 0.0
    seed: int = 0


def hash_row(token_ids: IntArray, dim: int) -> FloatArray:
    """Return the embedding of a text: (dim,) float32 of unit length, a hash of its token ids."""
    digest = hashlib.blake2b(np.ascontiguousarray(token_ids, np.int64).tobytes(), digest_size=8).digest()
    values = np.random.Generator(np.random.PCG64(int.from_bytes(digest))).standard_normal(dim, np.float32)
    return values / np.float32(np.linalg.norm(values))


def hash_token_rows(token_ids: IntArray, dim: int) -> FloatArray:
    """Return the token embeddings of a text: (tokens, dim) float32, hashes of the ids up to each token."""
    return np.stack([hash_row(token_ids[: end + 1], dim) for end in range(len(token_ids))])


def hash_sparse_row(token_ids: IntArray, dim: int) -> SparseEmbedding:
    """Return the sparse embedding of a text: one hashed weight for each of its token ids."""
    columns = np.unique(token_ids % dim).astype(np.int64)
    return SparseEmbedding(columns, np.abs(hash_row(token_ids, len(columns))))


class FakeEngine:
    """An engine with deterministic embeddings and scripted faults. Safe for any number of lanes."""

    def __init__(
        self,
        *,
        dim: int = 16,
        max_tokens: int = 256,
        lane_widths: tuple[int, ...] = (1, 2),
        output_shape: OutputShape = OutputShape.TEXT,
        faults: FaultScript | None = None,
    ) -> None:
        self.info = EngineInfo("fake", "exact", "none", dim, max_tokens, lane_widths, output_shape)
        self.released = threading.Event()
        self.closed = False
        self.renewals = 0
        self.calls: list[tuple[int, int]] = []  # (texts, width) of each call so far
        self._faults = faults or FaultScript()
        self._random = random.Random(self._faults.seed)
        self._called = threading.Condition()

    @classmethod
    def load(cls, description: "ModelDescription", plan: EnginePlan, *, cores: int, cache_dir: Path) -> Self:
        """Return an engine with the model's dimensions that loads no weights."""
        return cls(
            dim=description.dim,
            max_tokens=description.max_tokens,
            lane_widths=lane_widths(plan.lane_widths, cores),
            output_shape=description.output_shape,
        )

    @classmethod
    def find_capabilities(cls) -> EngineCapabilities:
        """Return the device `none`, without precisions."""
        return EngineCapabilities({"none": ()})

    def warm_up(self, texts: Sequence[TokenSequence] = ()) -> CostModel:
        """Return a fixed cost without running any call."""
        return CostModel(fixed_s=1e-4, per_token_s=1e-6)

    def run(self, batch: Batch, *, width: int) -> Embeddings:
        """Return the hash of each text.

        Raises `InferenceFailed` or `DeviceLost` if the script has this fault for the call.
        """
        fault = self._next_fault(batch, width)
        if fault is Fault.HANG:
            self.released.wait()
        if fault is Fault.DIE:
            raise SystemExit("scripted")
        if fault is Fault.DEVICE:
            raise DeviceLost("The device of the fake engine no longer responds.")
        if fault is Fault.MEMORY:
            raise MemoryError("scripted")
        if fault is Fault.RAISE:
            raise InferenceFailed("The script of the fake engine makes this call fail.")
        texts = np.split(batch.token_ids, batch.offsets[1:-1])
        if fault is Fault.SHORT:
            texts = texts[:-1]
        embeddings = self._hash(texts, batch)
        if fault is Fault.NAN:
            embeddings.values[0] = np.nan
        for index, ids in enumerate(texts):
            if not self._faults.nan.isdisjoint(ids.tolist()):
                embeddings.of_text(index)[0] = np.nan
        return embeddings

    def renew(self) -> None:
        """Count the call."""
        self.renewals += 1

    def wait_for_calls(self, count: int) -> None:
        """Wait until `count` calls have begun."""
        with self._called:
            self._called.wait_for(lambda: len(self.calls) >= count)

    def close(self) -> None:
        """Let the calls that hang return."""
        self.closed = True
        self.released.set()

    def _hash(self, texts: Sequence[IntArray], batch: Batch) -> Embeddings:
        shapes = batch.output_shapes(self.info.output_shape)
        pairs = zip(batch.outputs, shapes, strict=True)
        made = {output: self._hash_output(texts, batch, output, shape) for output, shape in pairs}
        first, *others = made
        return replace(made[first], others={output: made[output] for output in others})

    def _hash_output(
        self, texts: Sequence[IntArray], batch: Batch, output: Output, shape: OutputShape
    ) -> Embeddings:
        dim, computed_tokens = self.info.dim, len(batch) * int(batch.lengths.max())
        if output is Output.TOKEN_WEIGHTS:
            shape, dim = OutputShape.SPARSE, 1 + int(batch.token_ids.max())
        columns: IntArray | None = None
        values: list[FloatArray] = []
        match shape:
            case OutputShape.TEXT:
                values = [hash_row(ids, dim)[None] for ids in texts]
            case OutputShape.TOKEN:
                values = [hash_token_rows(ids, dim) for ids in texts]
            case OutputShape.REST:
                values = [hash_token_rows(ids, dim)[1:] for ids in texts]
            case OutputShape.SPARSE:
                sparse = [hash_sparse_row(ids, dim) for ids in texts]
                values = [one.values for one in sparse]
                columns = np.concatenate([np.zeros(0, np.int64), *(one.columns for one in sparse)])
        offsets = np.cumsum([0, *map(len, values)])
        empty = np.zeros((0,) if columns is not None else (0, dim), np.float32)
        return Embeddings(np.concatenate([empty, *values]), offsets, computed_tokens, columns)

    def _next_fault(self, batch: Batch, width: int) -> Fault | None:
        with self._called:
            number = len(self.calls)
            self.calls.append((len(batch), width))
            unlucky = self._random.random() < self._faults.share
            self._called.notify_all()
        if not self._faults.poison.isdisjoint(batch.token_ids.tolist()):
            return Fault.RAISE
        return self._faults.calls.get(number, Fault.RAISE if unlucky else None)
