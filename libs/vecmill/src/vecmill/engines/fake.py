"""An engine without a model: the row of a text, or of a token, is a hash of token ids.

Public, for everyone's tests: rows are exact, so a swapped or lost one is seen at once, and a
script makes calls fail, answer nonsense, hang or die.
"""

import hashlib
import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from vecmill.engines.base import Survey
from vecmill.errors import InferenceFailed
from vecmill.plan import EnginePlan
from vecmill.types import Batch, CostModel, EngineInfo, FloatArray, IntArray, RowForm, Rows, SparseRow

if TYPE_CHECKING:
    from vecmill.models import ModelDescription


class Fault(StrEnum):
    """What can go wrong in one engine call."""

    RAISE = "raise"  # an exception, as from a runtime
    NAN = "nan"  # a row that is not a number
    SHORT = "short"  # one row too few
    HANG = "hang"  # does not return before `FakeEngine.released` is set
    DIE = "die"  # takes its thread down


@dataclass(frozen=True, slots=True)
class FaultScript:
    """Which calls go wrong.

    `poison` and `nan` hold token ids that spoil every call or row with such an id in it. `calls` names
    faults by the number of the call, from 0. `share` is the probability that any other call
    raises, drawn from `seed`.
    """

    poison: frozenset[int] = frozenset()
    nan: frozenset[int] = frozenset()
    calls: Mapping[int, Fault] = field(default_factory=dict)
    share: float = 0.0
    seed: int = 0


def hash_row(token_ids: IntArray, dim: int) -> FloatArray:
    """The row of a text: (dim,) float32 of unit length, a function of its token ids alone."""
    digest = hashlib.blake2b(np.ascontiguousarray(token_ids, np.int64).tobytes(), digest_size=8).digest()
    values = np.random.Generator(np.random.PCG64(int.from_bytes(digest))).standard_normal(dim, np.float32)
    return values / np.float32(np.linalg.norm(values))


def hash_token_rows(token_ids: IntArray, dim: int) -> FloatArray:
    """The rows of a text's tokens: (tokens, dim) float32 of unit length, each of the ids up to its own."""
    return np.stack([hash_row(token_ids[: end + 1], dim) for end in range(len(token_ids))])


def hash_sparse_row(token_ids: IntArray, dim: int) -> SparseRow:
    """The sparse row of a text: a weight for each of its ids, that of its hash."""
    columns = np.unique(token_ids % dim).astype(np.int64)
    return SparseRow(columns, np.abs(hash_row(token_ids, len(columns))))


class FakeEngine:
    """Deterministic rows and scripted faults. Safe for any number of lanes."""

    def __init__(
        self,
        *,
        dim: int = 16,
        max_tokens: int = 256,
        lane_widths: tuple[int, ...] = (1, 2),
        form: RowForm = RowForm.TEXT,
        faults: FaultScript | None = None,
    ) -> None:
        self.info = EngineInfo("fake", "exact", "none", dim, max_tokens, lane_widths, form)
        self.released = threading.Event()
        self.closed = False
        self.calls: list[tuple[int, int]] = []  # (texts, width) of each call so far
        self._faults = faults or FaultScript()
        self._random = random.Random(self._faults.seed)
        self._called = threading.Condition()

    @classmethod
    def load(cls, description: "ModelDescription", plan: EnginePlan, *, cores: int, cache_dir: Path) -> Self:
        """An engine of the model's shape that computes nothing."""
        return cls(
            dim=description.dim,
            max_tokens=description.max_tokens,
            lane_widths=plan.widths_within(cores),
            form=description.row_form,
        )

    @classmethod
    def survey(cls) -> Survey:
        """Everywhere, and nothing."""
        return Survey({"none": ()})

    def warm_up(self) -> CostModel:
        """There is nothing to warm up; the cost is a guess."""
        return CostModel(fixed_s=1e-4, per_token_s=1e-6)

    def run(self, batch: Batch, *, width: int) -> Rows:
        """Hash each text. Raises `InferenceFailed` where the script says so."""
        fault = self._next_fault(batch, width)
        if fault is Fault.HANG:
            self.released.wait()
        if fault is Fault.DIE:
            raise SystemExit("scripted")
        if fault is Fault.RAISE:
            raise InferenceFailed("The script of the fake engine makes this call fail.")
        texts = np.split(batch.token_ids, batch.offsets[1:-1])
        if fault is Fault.SHORT:
            texts = texts[:-1]
        rows = self._rows(texts, computed_tokens=len(batch) * int(batch.lengths.max()))
        if fault is Fault.NAN:
            rows.values[0] = np.nan
        for index, ids in enumerate(texts):
            if not self._faults.nan.isdisjoint(ids.tolist()):
                rows.row(index)[0] = np.nan
        return rows

    def wait_for_calls(self, count: int) -> None:
        """Wait until that many calls have begun."""
        with self._called:
            self._called.wait_for(lambda: len(self.calls) >= count)

    def close(self) -> None:
        """Let hanging calls go."""
        self.closed = True
        self.released.set()

    def _rows(self, texts: Sequence[IntArray], *, computed_tokens: int) -> Rows:
        dim = self.info.dim
        columns: IntArray | None = None
        values: list[FloatArray] = []
        match self.info.form:
            case RowForm.TEXT:
                values = [hash_row(ids, dim)[None] for ids in texts]
            case RowForm.TOKEN:
                values = [hash_token_rows(ids, dim) for ids in texts]
            case RowForm.SPARSE:
                sparse = [hash_sparse_row(ids, dim) for ids in texts]
                values = [row.values for row in sparse]
                columns = np.concatenate([np.zeros(0, np.int64), *(row.columns for row in sparse)])
        offsets = np.cumsum([0, *map(len, values)])
        empty = np.zeros((0,) if columns is not None else (0, dim), np.float32)
        return Rows(np.concatenate([empty, *values]), offsets, computed_tokens, columns)

    def _next_fault(self, batch: Batch, width: int) -> Fault | None:
        with self._called:
            number = len(self.calls)
            self.calls.append((len(batch), width))
            unlucky = self._random.random() < self._faults.share
            self._called.notify_all()
        if not self._faults.poison.isdisjoint(batch.token_ids.tolist()):
            return Fault.RAISE
        return self._faults.calls.get(number, Fault.RAISE if unlucky else None)
