"""The clock, which callers pass as a value, so that no test has to wait."""

import math
import time
from typing import Protocol

# A tick may be so late because the event loop is busy.
GRACE_S = 1.0


class Clock(Protocol):
    """A function that returns the seconds since an arbitrary start; the value never decreases."""

    def __call__(self) -> float: ...


monotonic: Clock = time.monotonic


class RunningClock:
    """The seconds in which the process ran, of the seconds of `clock`.

    It stands still while the process does not run: it is stopped, or its computer is suspended. The owner's
    timer ticks while something runs. A tick that comes much later than it was due shows that the process, or
    at least its event loop, stood still. The clock leaves out this time, so it is right before the late tick
    too: the time after the due time of a tick counts for `GRACE_S` at most.

    It needs a lock if several threads use it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._latest = math.inf  # the time that counts until the next tick, on `clock`
        self._left_out_s = 0.0

    def __call__(self) -> float:
        """Return the seconds since an arbitrary start; the value never decreases."""
        return min(self._clock(), self._latest) - self._left_out_s

    def read(self) -> tuple[float, float]:
        """Return the seconds as a call does, and the sum of the seconds that were left out."""
        now = self._clock()
        stood_still_s = self._left_out_s + max(0.0, now - self._latest)
        return min(now, self._latest) - self._left_out_s, stood_still_s

    def expect_tick(self, due_at: float | None) -> None:
        """Set the time, on the given clock, when the next tick is due; `None` if no tick is planned."""
        self.tick()
        self._latest = math.inf if due_at is None else due_at + GRACE_S

    def tick(self) -> float:
        """Leave out the time since the planned tick was due, except `GRACE_S`. No tick is planned now.

        Return the seconds that are left out.
        """
        late_s = max(0.0, self._clock() - self._latest)
        self._left_out_s += late_s
        self._latest = math.inf
        return late_s
