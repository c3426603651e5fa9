"""The core budget of the process, shared by the lanes of all models."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

# Returns whether a dispatcher could compute something if it had a core.
WantsCore = Callable[[], bool]


@dataclass(slots=True)
class _Member:
    """One dispatcher, and the core seconds that it has received."""

    wants_core: WantsCore
    received_s: float
    last_take: int = 0

    def goes_before(self, other: "_Member") -> bool:
        """Return whether this dispatcher is next before `other`."""
        return (self.received_s, self.last_take) <= (other.received_s, other.last_take)


class CoreBudget:
    """The cores of this process, shared by all lanes of all models.

    `lock` guards `free` and the queues of all dispatchers. Each dispatcher waits on its own condition over
    `lock`, so a wake-up for one model never wakes a lane of another model instead. Cores go to the dispatcher
    that has received the fewest core seconds, so a busy model cannot starve the others. A dispatcher that had
    nothing to compute gets no credit for that time.

    A call may borrow cores: it computes on more cores than it takes. The other cores stay free for other
    calls, and as soon as one of these begins, the operating system shares the cores between them. `overlaps`
    counts how often a call began that shares its cores. `long_cores` is the number of cores that calls with
    long texts have taken.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.free = total
        self.lock = threading.Lock()
        self.overlaps = 0
        self.long_cores = 0
        self._borrowed = 0
        self._members: dict[threading.Condition, _Member] = {}
        self._takes = 0

    def join(self, wants_core: WantsCore) -> threading.Condition:
        """Add a dispatcher. Return its condition over `lock`, which is notified when cores become free.

        `wants_core` is called with `lock` held.
        """
        condition = threading.Condition(self.lock)
        received_s = max((member.received_s for member in self._members.values()), default=0.0)
        self._members[condition] = _Member(wants_core, received_s)
        return condition

    def leave(self, condition: threading.Condition) -> None:
        """Remove the dispatcher with `condition`."""
        del self._members[condition]

    def may_take(self, width: int, condition: threading.Condition) -> bool:
        """Return whether `width` cores are free and the dispatcher with `condition` is next.

        Call with `lock` held.
        """
        if width > self.free or len(self._members) == 1:
            return width <= self.free
        own = self._members[condition]
        others = [member for member in self._members.values() if member is not own]
        return all(own.goes_before(other) or not other.wants_core() for other in others)

    @property
    def is_shared(self) -> bool:
        """Whether calls share cores now. Call with `lock` held."""
        return self._borrowed > self.free

    def take(
        self,
        width: int,
        condition: threading.Condition,
        cost_s: float,
        *,
        borrowed: int = 0,
        is_long: bool = False,
    ) -> None:
        """Take `width` free cores for a call of `cost_s` core seconds, which computes on `borrowed` more.

        Call with `lock` held.
        """
        assert width <= self.free
        self.free -= width
        self._borrowed += borrowed
        self.long_cores += width * is_long
        self.overlaps += self._borrowed > self.free
        own = self._members[condition]
        own.received_s += cost_s
        self._takes += 1
        own.last_take = self._takes
        for member in self._members.values():
            if member.received_s < own.received_s and not member.wants_core():
                member.received_s = own.received_s

    def give_back(self, width: int, *, borrowed: int = 0, is_long: bool = False) -> None:
        """Free `width` cores and notify the dispatchers that could use one. Call with `lock` held.

        A thread that is woken in vain takes the interpreter lock from the event loop, which is answering.
        """
        self.free += width
        self._borrowed -= borrowed
        self.long_cores -= width * is_long
        assert self.free <= self.total
        for condition, member in self._members.items():
            if member.wants_core():
                condition.notify()

    def wake_others(self, condition: threading.Condition) -> None:
        """Notify the other dispatchers, which then call `may_take` again. Call with `lock` held."""
        for member in self._members:
            if member is not condition:
                member.notify()
