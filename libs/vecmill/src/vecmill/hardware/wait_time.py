"""How long waiting texts take: the one definition, for the metrics, the console, autoscaling and alerts.

It is the time until all texts that wait now are in engine calls. Models that share cores wait for each other,
so there is one time for all of them:

    waiting work of all models / (full speed * share)

- The waiting work of a model is in core seconds, as its pace predicts them at the present speed of the
  machine.
- The full speed is the number of cores on which the waiting work can be computed: at most all. A model whose
  lanes use fewer, such as that of a GPU, computes on these alone.
- The share is observed: the part of the full speed that became work while texts waited. It falls through all
  that no prediction of a call has: the time between calls, fixed costs of calls, warm-ups of other models.

With the observed speed, the mean of this time is the mean wait of texts (Little's law). The part of a model
is its part of the waiting work, so the parts of all models add up to the time.

The lock of the core budget guards it.
"""

import math
import threading
from collections.abc import Callable
from typing import NamedTuple

from vecmill.values.clock import Clock
from vecmill.values.waiting_work import WaitingWork

# The seconds with waiting work over which the share is averaged.
MEMORY_S = 5.0
# At the start the prediction counts as much as an observation of this time, and with each call half of it.
PRIOR_S = 1.0
# No more time than this counts between two events: the process stood still, or a call takes very long.
MOST_S = 2.0
LEAST_SHARE, MOST_SHARE = 0.001, 2.0
# Less than this is the rounding error of sums that are empty.
_NOTHING_S = 1e-9


class Mark(NamedTuple):
    """The begin of a call: its time, and the seconds with waiting work before it."""

    at: float
    waited_s: float


ReadWaiting = Callable[[], WaitingWork]


class WaitTime:
    """The time that waiting texts take; see the module docstring."""

    def __init__(self, cores: int, clock: Clock) -> None:
        self._cores = cores
        self._clock = clock
        self._members: dict[threading.Condition, ReadWaiting] = {}
        self._at = clock()
        self._full_speed = 0.0  # after the last event; 0 if nothing waited
        self._waited_s = 0.0
        self._could_s = self._done_s = 0.0
        self._prior_s = PRIOR_S * cores

    def join(self, member: threading.Condition, waiting: ReadWaiting) -> None:
        """Add a model, whose waiting work `waiting` returns. It is called with the lock held."""
        self._members[member] = waiting

    def leave(self, member: threading.Condition) -> None:
        """Remove a model."""
        self._members.pop(member, None)

    def whole_s(self) -> float:
        """Return how long all texts that wait now take."""
        return sum(map(self.part_s, self._members))

    def part_s(self, member: threading.Condition) -> float:
        """Return the part of a model in `whole_s`."""
        own = self._members[member]() if member in self._members else None
        if own is None or own.cost_s <= _NOTHING_S:
            return 0.0
        return own.cost_s * own.slowness / (self._find_full_speed() * self._share())

    def begin(self) -> Mark:
        """Note that a call begins, whose texts wait no more."""
        self._pass_time()
        return Mark(self._at, self._waited_s)

    def end(self, member: threading.Condition, began: Mark, cost_s: float) -> None:
        """Note that a call of a model ends, over texts of this cost, as waiting texts are counted.

        Of its work counts the part of its time in which other texts waited.
        """
        self._pass_time()
        waited_s, took_s = self._waited_s - began.waited_s, self._at - began.at
        if waited_s > 0 and took_s > 0 and member in self._members:
            # As slow as the machine is now. Else a change of its speed would count twice for a while.
            self._done_s += cost_s * self._members[member]().slowness * min(waited_s / took_s, 1.0)
            self._prior_s /= 2

    def _pass_time(self) -> None:
        now, before, after = self._clock(), self._full_speed, self._find_full_speed()
        if before or after:
            since = self._at
            if not before:  # texts came meanwhile
                since = max(since, min([waiting().since for waiting in self._members.values()]))
            passed_s = min(now - since, MOST_S)
            if passed_s > 0:
                kept = math.exp(-passed_s / MEMORY_S)
                self._waited_s += passed_s
                self._could_s = kept * self._could_s + passed_s * (before or after)
                self._done_s *= kept
        self._at, self._full_speed = now, after

    def _share(self) -> float:
        could_s = self._could_s + self._prior_s
        share = (self._done_s + self._prior_s) / could_s if could_s else 1.0
        return min(max(share, LEAST_SHARE), MOST_SHARE)

    def _find_full_speed(self) -> float:
        """Return the core seconds of waiting work that are computed in a second, 0 if nothing waits."""
        # Called at the begin and the end of each call.
        work_s, most_s = 0.0, 0.0  # of all models; the longest time of one, if it had all of its cores
        for waiting in self._members.values():
            cost_s, cores, slowness, _ = waiting()
            if cost_s > _NOTHING_S:
                work_s += cost_s * slowness
                most_s = max(most_s, cost_s * slowness / cores)
        return min(float(self._cores), work_s / most_s) if most_s else 0.0
