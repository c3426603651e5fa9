"""One lane: a worker thread, its state, and the rules for calls that hang and for lost lanes. Pure.

A call hangs if it takes longer than `hang_s` and longer than `HANG_FACTOR` times its predicted time. Before
the first long text of a model was measured, calls took up to 9 times their predicted time on busy cores.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vecmill.batching.ticket import Job
from vecmill.values.observer import LaneState

HANG_FACTOR = 10.0

# A call that shares its cores with another one may take this many times as long.
SHARED_FACTOR = 4.0

# A hung lane is replaced when its call has taken this many times the limit.
REPLACE_FACTOR = 2.0

# A lane is replaced so many times without one finished batch in between. Then new threads and sessions do not
# heal the engine.
MAX_REPLACEMENTS = 3

# So many threads for each lane may have been replaced without the return of their calls. Each may keep a core
# busy, and keeps its session in memory.
MAX_STUCK = 3

_LOST = frozenset({LaneState.HUNG, LaneState.DEAD})


@dataclass(frozen=True, slots=True)
class EngineCall:
    """A call of the engine: `began_at` on the running clock, the tokens of each text, and its cores.

    `predicted_s` is the time that the call was expected to take. `overlaps` is the count of the core budget
    when it began, -1 if it shared its cores from the beginning. A call without texts makes new sessions.
    """

    began_at: float
    lengths: Sequence[int] = ()
    width: int = 0
    predicted_s: float = 0.0
    overlaps: int = 0

    def limit_s(self, hang_s: float, *, is_shared: bool = False) -> float:
        """Return the seconds after which the call hangs, at least `hang_s`."""
        predicted_s = self.predicted_s * (SHARED_FACTOR if is_shared else 1.0)
        return max(hang_s, HANG_FACTOR * predicted_s)

    def describe(self, now: float) -> str:
        """Return the size, the elapsed time and the predicted time of the call, for the log."""
        what = f"{len(self.lengths)} texts with {sum(self.lengths)} tokens on {self.width} cores"
        return (
            f"{what if self.lengths else 'making new sessions'}: {now - self.began_at:.1f} s elapsed, "
            f"{self.predicted_s:.1f} s predicted"
        )


@dataclass(eq=False, slots=True)
class Lane:
    """One worker thread and its state. Guarded by the lock.

    `called_at` is the time when the lane took its batch. The call computes on `cores` that it took from the
    budget, and on `borrowed` ones. `has_long_text` tells whether the batch has a text that must not take the
    last lane. `call` is the latest engine call for the batch, also after the lane was given up.
    `replacements` counts the lanes of this number that were replaced in a row, without a finished batch.
    """

    number: int
    state: LaneState = LaneState.IDLE
    jobs: Sequence[Job] = ()
    cores: int = 0
    borrowed: int = 0
    has_long_text: bool = False
    called_at: float = 0.0
    call: EngineCall | None = None
    replacements: int = 0
    thread: threading.Thread | None = None

    @property
    def is_lost(self) -> bool:
        """Whether the lane hangs or is dead."""
        return self.state in _LOST

    @property
    def has_no_thread(self) -> bool:
        """Whether the thread has ended and could not report it."""
        return not self.is_lost and self.thread is not None and not self.thread.is_alive()

    @property
    def may_be_replaced(self) -> bool:
        """Whether another lane may take the place of this one if it is lost."""
        return self.replacements < MAX_REPLACEMENTS

    def forbid_replacement(self) -> None:
        """Make this lane the last one of its number, since no other could work either."""
        self.replacements = MAX_REPLACEMENTS


class Renewal:
    """New sessions of an engine, made once for all lanes that are replaced together.

    `renew` is the engine's method.
    """

    def __init__(self, renew: Callable[[], None]) -> None:
        self._renew = renew
        self._lock = threading.Lock()
        self._is_done = False

    def __call__(self) -> None:
        """Make the sessions, unless another thread has made them."""
        with self._lock:
            if not self._is_done:
                self._renew()
                self._is_done = True
