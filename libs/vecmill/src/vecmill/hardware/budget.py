"""The core budget of the process, shared by the lanes of all models.

How it works. Each dispatcher is a member of the budget. A member has used the core seconds of all its calls:
those that ended as they were measured, and those that run as they were predicted or, once they take longer,
as long as they run. So predictions, which each model makes in its own way, only matter until a call ends.
Free cores go to the member that has used the fewest core seconds for its weight. A member that had nothing
to compute gets no credit for that time: it goes on where the others are (start-time fair queueing, Goyal,
Vin and Cheng 1996).
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from vecmill.hardware.wait_time import Mark, ReadWaiting, WaitTime
from vecmill.values.clock import Clock, monotonic

# Returns whether a dispatcher could compute something if it had a core.
WantsCore = Callable[[], bool]


@dataclass(eq=False, slots=True)
class TakenCores:
    """The cores of one call: `cores` of the budget, and `borrowed` ones on which it computes too.

    `began_at` is on the clock of the member. `predicted_s` is in core seconds. `cost_s` is the waiting work
    that the call took. `is_long` tells whether the call has a long text.
    """

    member: "_Member"
    cores: int
    borrowed: int
    is_long: bool
    began_at: float
    predicted_s: float
    cost_s: float
    mark: Mark

    def measured_s(self) -> float:
        """Return the core seconds of the call so far."""
        return (self.cores + self.borrowed) * (self.member.clock() - self.began_at)


@dataclass(eq=False, slots=True)
class _Member:
    """One dispatcher, and the core seconds that its calls used, those that run apart."""

    condition: threading.Condition
    wants_core: WantsCore
    weight: float
    clock: Clock
    ended_s: float = 0.0
    running: list[TakenCores] = field(default_factory=list)
    last_take: int = 0

    def used_s(self) -> float:
        """Return the core seconds of all calls, divided by the weight."""
        used_s = self.ended_s
        for taken in self.running:
            used_s += max(taken.predicted_s, taken.measured_s())
        return used_s / self.weight

    def catch_up(self, used_s: float) -> None:
        """Let the calls have used at least so much."""
        self.ended_s += self.weight * max(0.0, used_s - self.used_s())


class CoreBudget:
    """The cores of this process, shared by all lanes of all models; see the module docstring.

    `lock` guards `free` and the queues of all dispatchers. Each dispatcher waits on its own condition over
    `lock`, so a wake-up for one model never wakes a lane of another model instead.

    A call may borrow cores: it computes on more cores than it takes. The other cores stay free for other
    calls, and as soon as one of these begins, the operating system shares the cores between them. `overlaps`
    counts how often a call began that shares its cores. `long_cores` is the number of cores that calls with
    long texts have taken. `wait_time` tells how long the waiting texts of all models take.
    """

    def __init__(self, total: int, *, clock: Clock = monotonic) -> None:
        self.total = total
        self.free = total
        self.lock = threading.Lock()
        self.overlaps = 0
        self.long_cores = 0
        self.wait_time = WaitTime(total, clock)
        self._borrowed = 0
        self._members: dict[threading.Condition, _Member] = {}
        self._takes = 0

    def join(
        self,
        wants_core: WantsCore,
        *,
        weight: float = 1.0,
        clock: Clock = monotonic,
        waiting: ReadWaiting | None = None,
    ) -> threading.Condition:
        """Add a dispatcher. Return its condition over `lock`, which is notified when cores become free.

        `wants_core`, `clock` and `waiting` are called with `lock` held. `clock` times the calls of this
        dispatcher, `waiting` returns its waiting work; without it, it has none.
        While several dispatchers want cores, each gets core seconds in proportion to its `weight`. The new
        one begins where the next of those is that wait. Call with `lock` held.
        """
        condition = threading.Condition(self.lock)
        member = _Member(condition, wants_core, weight, clock)
        used_s = [other.used_s() for other in self._members.values()]
        waiting_s = [other.used_s() for other in self._members.values() if other.wants_core()]
        member.catch_up(min(waiting_s) if waiting_s else max(used_s, default=0.0))
        self._members[condition] = member
        if waiting is not None:
            self.wait_time.join(condition, waiting)
        return condition

    def leave(self, condition: threading.Condition) -> None:
        """Remove the dispatcher with `condition`. Call with `lock` held."""
        del self._members[condition]
        self.wait_time.leave(condition)

    def may_take(self, width: int, condition: threading.Condition) -> bool:
        """Return whether `width` cores are free and the dispatcher with `condition` is next.

        Call with `lock` held.
        """
        if width > self.free or len(self._members) == 1:
            return width <= self.free
        own = self._members[condition]
        own_s = own.used_s()
        for other in self._members.values():
            if other is own or not other.wants_core():
                continue
            if (other.used_s(), other.last_take) < (own_s, own.last_take):
                return False
        return True

    @property
    def is_shared(self) -> bool:
        """Whether calls share cores now. Call with `lock` held."""
        return self._borrowed > self.free

    def take(
        self,
        width: int,
        condition: threading.Condition,
        predicted_s: float,
        *,
        cost_s: float = 0.0,
        borrowed: int = 0,
        is_long: bool = False,
    ) -> TakenCores:
        """Take `width` free cores for a call, which computes on `borrowed` more.

        `predicted_s` is the number of core seconds that the call should take, `cost_s` the waiting work that
        it took. Give the result back when the call ends. Call with `lock` held.
        """
        assert width <= self.free
        self.free -= width
        self._borrowed += borrowed
        self.long_cores += width * is_long
        self.overlaps += self._borrowed > self.free
        own = self._members[condition]
        self._takes += 1
        own.last_take = self._takes
        if len(self._members) > 1:
            self._let_idle_members_catch_up(own)
        mark = self.wait_time.begin()
        taken = TakenCores(own, width, borrowed, is_long, own.clock(), predicted_s, cost_s, mark)
        own.running.append(taken)
        return taken

    def _let_idle_members_catch_up(self, own: _Member) -> None:
        used_s = own.used_s()
        for member in self._members.values():
            if member is not own and not member.wants_core():
                member.catch_up(used_s)

    def give_back(self, taken: TakenCores) -> None:
        """Free the cores of a call that has ended or was given up. Call with `lock` held.

        Dispatchers that could use a core are notified, and only these: a thread that is woken in vain takes
        the interpreter lock from the event loop, which is answering.
        """
        taken.member.running.remove(taken)
        taken.member.ended_s += taken.measured_s()
        self.wait_time.end(taken.member.condition, taken.mark, taken.cost_s)
        self.free += taken.cores
        self._borrowed -= taken.borrowed
        self.long_cores -= taken.cores * taken.is_long
        assert self.free <= self.total
        for condition, member in self._members.items():
            if member.wants_core():
                condition.notify()

    def wake_others(self, condition: threading.Condition) -> None:
        """Notify the other dispatchers, which then call `may_take` again. Call with `lock` held."""
        for member in self._members:
            if member is not condition:
                member.notify()

    @contextmanager
    def hold(self, width: int) -> Iterator[None]:
        """Hold cores for work beside the lanes, such as a warm-up, which waits for its turn as a call does.

        Blocks the thread until `width` cores are free, or all if there are fewer.
        """
        is_waiting = True
        with self.lock:
            condition = self.join(lambda: is_waiting)
            try:
                while not self.may_take(min(width, self.total), condition):
                    condition.wait()
                taken = self.take(min(width, self.total), condition, 0.0)
            except BaseException:
                self.leave(condition)
                self.wake_others(condition)
                raise
            is_waiting = False
            self.wake_others(condition)
        try:
            yield
        finally:
            with self.lock:
                self.leave(condition)
                self.give_back(taken)
