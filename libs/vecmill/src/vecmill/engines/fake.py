"""An engine without a model: the row of a text is a hash of its token ids.

Public, for everyone's tests: rows are exact, so a swapped or lost one is seen at once, and a
script makes calls fail, answer nonsense, hang or die.
"""

import hashlib
import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from vecmill.errors import InferenceFailed
from vecmill.types import Batch, CostModel, EngineInfo, FloatArray, IntArray, Rows

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


class FakeEngine:
    """Deterministic rows and scripted faults. Safe for any number of lanes."""

    def __init__(
        self,
        *,
        dim: int = 16,
        max_tokens: int = 256,
        lane_widths: tuple[int, ...] = (1, 2),
        faults: FaultScript | None = None,
    ) -> None:
        self.info = EngineInfo("fake", "exact", "none", dim, max_tokens, lane_widths)
        self.released = threading.Event()
        self.closed = False
        self.calls: list[tuple[int, int]] = []  # (texts, width) of each call so far
        self._faults = faults or FaultScript()
        self._random = random.Random(self._faults.seed)
        self._called = threading.Condition()

    @classmethod
    def load(cls, description: "ModelDescription", *, cores: int, cache_dir: Path) -> Self:
        """An engine of the model's shape that computes nothing."""
        widths = (1, cores) if cores > 1 else (1,)
        return cls(dim=description.dim, max_tokens=description.max_tokens, lane_widths=widths)

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
        values = np.stack([self._row(ids) for ids in np.split(batch.token_ids, batch.offsets[1:-1])])
        if fault is Fault.NAN:
            values[0, 0] = np.nan
        if fault is Fault.SHORT:
            values = values[:-1]
        return Rows.one_per_text(values, computed_tokens=len(batch) * int(batch.lengths.max()))

    def wait_for_calls(self, count: int) -> None:
        """Wait until that many calls have begun."""
        with self._called:
            self._called.wait_for(lambda: len(self.calls) >= count)

    def close(self) -> None:
        """Let hanging calls go."""
        self.closed = True
        self.released.set()

    def _row(self, token_ids: IntArray) -> FloatArray:
        row = hash_row(token_ids, self.info.dim)
        if not self._faults.nan.isdisjoint(token_ids.tolist()):
            row[0] = np.nan
        return row

    def _next_fault(self, batch: Batch, width: int) -> Fault | None:
        with self._called:
            number = len(self.calls)
            self.calls.append((len(batch), width))
            unlucky = self._random.random() < self._faults.share
            self._called.notify_all()
        if not self._faults.poison.isdisjoint(batch.token_ids.tolist()):
            return Fault.RAISE
        return self._faults.calls.get(number, Fault.RAISE if unlucky else None)
