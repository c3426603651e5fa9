"""The core budget of the process, shared by the lanes of all models."""

import threading
from collections.abc import Callable

# The arrival time of the oldest text that a dispatcher could compute if it had a core; `None` if there is
# none.
Oldest = Callable[[], float | None]


class CoreBudget:
    """The cores of this process, shared by all lanes of all models.

    `lock` guards `free` and the queues of all dispatchers. Each dispatcher waits on its own condition over
    `lock`, so a wake-up for one model never wakes a lane of another model instead. Cores go to the dispatcher
    whose oldest text has waited longest, so a busy model cannot starve the others.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.free = total
        self.lock = threading.Lock()
        self._members: dict[threading.Condition, Oldest] = {}

    def join(self, oldest: Oldest) -> threading.Condition:
        """Add a dispatcher. Return its condition over `lock`, which is notified when cores become free.

        `oldest` is called with `lock` held.
        """
        condition = threading.Condition(self.lock)
        self._members[condition] = oldest
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
        own = self._members[condition]()
        others = (oldest() for member, oldest in self._members.items() if member is not condition)
        return own is not None and all(other is None or own <= other for other in others)

    def take(self, width: int) -> bool:
        """Take `width` cores if that many are free. Call with `lock` held."""
        if width > self.free:
            return False
        self.free -= width
        return True

    def give_back(self, width: int) -> None:
        """Free `width` cores and notify all dispatchers. Call with `lock` held."""
        self.free += width
        assert self.free <= self.total
        for condition in self._members:
            condition.notify()

    def wake_others(self, condition: threading.Condition) -> None:
        """Notify the other dispatchers, which then call `may_take` again. Call with `lock` held."""
        for member in self._members:
            if member is not condition:
                member.notify()
