"""How many cores this process may use, and one budget of them for everything that it computes.

The budget respects the affinity mask (`taskset`, Kubernetes' static CPU policy) and the quota of
the control group (`docker --cpus`, Kubernetes' limits), version 1 and 2.
"""

import math
import os
import threading
from collections.abc import Callable
from pathlib import Path


def available_cores(root: Path = Path("/")) -> int:
    """Cores that this process may keep busy, at least 1. `root` is where /proc and /sys are."""
    cores = len(usable_processors())
    quota = _cgroup_quota(root)
    return cores if quota is None else max(1, min(cores, math.floor(quota)))


def usable_processors() -> frozenset[int]:
    """The numbers of the processors that this process may run on."""
    # macOS and Windows have no affinity to ask for.
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def _cgroup_quota(root: Path) -> float | None:
    """The smallest CPU quota of the control groups that hold this process, in cores."""
    quotas = [_read_v2(folder) for folder in _folders(root, "", "sys/fs/cgroup")]
    quotas += [_read_v1(folder) for folder in _folders(root, "cpu", "sys/fs/cgroup/cpu")]
    return min((quota for quota in quotas if quota is not None), default=None)


def _folders(root: Path, controller: str, mount: str) -> list[Path]:
    """The process's control group of `controller` ("" for version 2) and all groups above it."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    # A line reads `number:controller,controller:/path`.
    parts = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    paths = [path for _, controllers, path in parts if controller in controllers.split(",")]
    base = root / mount
    folders = []
    for path in paths:
        folder = base / path.lstrip("/")
        folders += [folder, *(parent for parent in folder.parents if parent.is_relative_to(base))]
    return folders


def _read_v2(folder: Path) -> float | None:
    try:
        quota, period = (folder / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None


def _read_v1(folder: Path) -> float | None:
    try:
        quota = int((folder / "cpu.cfs_quota_us").read_text())
        return None if quota <= 0 else quota / int((folder / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None


# When the oldest text arrived that a dispatcher could compute if it had a core; `None` if there is none.
Oldest = Callable[[], float | None]


class CoreBudget:
    """The cores of this process, shared by all lanes of all models.

    `lock` is the one lock of everything that competes for cores: it guards `free` and the queues.
    Each dispatcher waits on a condition of its own over that lock, so that waking a lane of one
    model never wakes another's instead. Cores go to the dispatcher whose oldest text has waited
    longest, so that a model with much to do cannot keep them from the others.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.free = total
        self.lock = threading.Lock()
        self._members: dict[threading.Condition, Oldest] = {}

    def join(self, oldest: Oldest) -> threading.Condition:
        """A condition over `lock`, notified when cores come free; for one more dispatcher.

        `oldest` is called with `lock` held.
        """
        condition = threading.Condition(self.lock)
        self._members[condition] = oldest
        return condition

    def leave(self, condition: threading.Condition) -> None:
        """The dispatcher with `condition` is gone."""
        del self._members[condition]

    def may_take(self, width: int, condition: threading.Condition) -> bool:
        """Whether `width` cores are free, and it is the turn of the dispatcher with `condition`.

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
        """Return `width` cores and wake who may wait for them. Call with `lock` held."""
        self.free += width
        assert self.free <= self.total
        for condition in self._members:
            condition.notify()

    def wake_others(self, condition: threading.Condition) -> None:
        """Let the other dispatchers look again whether it is their turn. Call with `lock` held."""
        for member in self._members:
            if member is not condition:
                member.notify()
