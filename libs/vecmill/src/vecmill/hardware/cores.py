"""Counts the cores that this process may use, and reads which processors share a core, a node or a speed.

The count respects the affinity mask (`taskset`, Kubernetes' static CPU policy) and the quota of the control
group, version 1 or 2 (`docker --cpus`, Kubernetes' limits).

A call over many cores waits for its slowest part after every operator. Two processors of one core (SMT)
share its multipliers, the memory of another NUMA node is slow, and Arm processors can have small cores
beside big ones. So a wide call gets one processor of each core of one node and one speed, and at most as many
as an operator over a few hundred tokens can use. The other processors run other calls: narrow calls give the
best throughput.

    sys/devices/system/node/node0/cpulist                      0-31,64-95
    sys/devices/system/cpu/cpu3/topology/core_cpus_list        3,67 (thread_siblings_list before Linux 5.3)
    sys/devices/system/cpu/cpu3/cpu_capacity                   1024 (the fastest; missing on many machines)
"""

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vecmill.hardware.system_calls import usable_processors

logger = logging.getLogger(__name__)


def available_cores(root: Path = Path("/")) -> int:
    """Return the number of cores that this process may use, at least 1. `root` contains /proc and /sys."""
    cores = len(usable_processors())
    quota = _cgroup_quota(root)
    return cores if quota is None else max(1, min(cores, math.floor(quota)))


def count_cores(asked: int | None) -> int:
    """Return the cores that were asked for, or all. Logs a warning if there are fewer than asked."""
    found = available_cores()
    if asked is not None and asked > found:
        logger.warning(
            "%d cores are asked for, and this process may use %d (by its affinity and control group). Calls "
            "will wait for each other, and their times are predicted wrongly. Leave the number out to use "
            "all %d.",
            asked,
            found,
            found,
        )
    return asked or found


def _cgroup_quota(root: Path) -> float | None:
    """Return the smallest CPU quota of the process's control groups, in cores."""
    quotas = [_read_v2(folder) for folder in list_control_groups(root, "", "sys/fs/cgroup")]
    quotas += [_read_v1(folder) for folder in list_control_groups(root, "cpu", "sys/fs/cgroup/cpu")]
    return min((quota for quota in quotas if quota is not None), default=None)


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


def list_control_groups(root: Path, controller: str, mount: str) -> list[Path]:
    """Return the folder of the process's control group of `controller`, and the folders of all its parents.

    `controller` is "" for version 2. `root` contains /proc and /sys. `mount` is the folder below `root` where
    the groups are.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    # The format of a line is `number:controller,controller:/path`.
    parts = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    paths = [path for _, controllers, path in parts if controller in controllers.split(",")]
    base = root / mount
    folders = []
    for path in paths:
        folder = base / path.lstrip("/")
        folders += [folder, *(parent for parent in folder.parents if parent.is_relative_to(base))]
    return folders


# Beyond this width the parts of an operator are so small that distributing them takes as long as computing
# them.
WIDEST_CALL = 16

_SIBLING_FILES = ("core_cpus_list", "thread_siblings_list")

# Cores of one type differ by 3% on Grace and GB10, since some reach a higher frequency. Small cores have
# three quarters of the capacity of big ones, or less.
_SAME_SPEED = 0.9


@dataclass(frozen=True, slots=True)
class Topology:
    """The usable processors: for each NUMA node and speed the cores, each a set of processors."""

    groups: tuple[frozenset[frozenset[int]], ...]
    numa_nodes: int = 1

    @classmethod
    def read(cls, root: Path = Path("/"), processors: frozenset[int] | None = None) -> Self:
        """Read the topology under `root`; if it is unknown, one group of single-processor cores.

        `processors` are the numbers of the usable processors, by default `usable_processors()`.
        """
        usable = usable_processors() if processors is None else processors
        nodes = [node & usable for node in _read_nodes(root / "sys/devices/system/node")]
        known = frozenset().union(*nodes)
        if usable - known:
            nodes.append(usable - known)
        folder = root / "sys/devices/system/cpu"
        used = [node for node in nodes if node]
        groups = [group for node in used for group in _split_by_speed(folder, node)]
        cores = (frozenset(_read_core(folder, cpu) & group for cpu in group) for group in groups)
        return cls(tuple(cores), len(used))

    def widest_call(self, cores: int) -> int:
        """Return how many of `cores` processors one call may use. The result is at least 1."""
        whole_group = max(len(group) for group in self.groups)
        # Two are faster even if they seem to share a core: virtual machines do not always report cores
        # correctly.
        return min(cores, max(2, min(whole_group, WIDEST_CALL)))


# The width between one core and the widest call: at least this, and at most so many calls side by side.
LEAST_MIDDLE_WIDTH = 4
MOST_MIDDLE_CALLS = 8


def lane_widths(planned: tuple[int, ...], cores: int, *, has_middle: bool = True) -> tuple[int, ...]:
    """Return the planned lane widths that fit `cores` cores, or the usual ones if none fits.

    These are 1, the widest call, and with `has_middle` a width between them, if two such calls fit.
    """
    fitting = tuple(width for width in planned if width <= cores)
    return fitting or usual_widths(cores, Topology.read().widest_call(cores), has_middle=has_middle)


def usual_widths(cores: int, widest: int, *, has_middle: bool = True) -> tuple[int, ...]:
    """Return the lane widths of a machine with `cores` cores, of which one call may use `widest`."""
    middle = max(LEAST_MIDDLE_WIDTH, cores // MOST_MIDDLE_CALLS)
    fits = has_middle and middle < widest and 2 * middle <= cores
    return tuple(sorted({1, middle, widest} if fits else {1, widest}))


def _read_nodes(folder: Path) -> Iterator[frozenset[int]]:
    for path in sorted(folder.glob("node[0-9]*")):
        listed = _read_list(path / "cpulist")
        if listed:
            yield listed


def _split_by_speed(folder: Path, processors: frozenset[int]) -> Iterator[frozenset[int]]:
    """Yield the processors of each speed, the fastest first; all at once if the speeds are unknown."""
    speeds = {cpu: _read_capacity(folder / f"cpu{cpu}/cpu_capacity") for cpu in processors}
    remaining = set(processors)
    while remaining:
        least = _SAME_SPEED * max(speeds[cpu] for cpu in remaining)
        group = frozenset(cpu for cpu in remaining if speeds[cpu] >= least)
        yield group
        remaining -= group


def _read_capacity(path: Path) -> int:
    """Return the speed of a processor beside others; 0 if the file cannot be read."""
    try:
        return max(int(path.read_text()), 0)
    except (OSError, ValueError):
        return 0


def _read_core(folder: Path, processor: int) -> frozenset[int]:
    """Return the processors that share a core with `processor`, including itself."""
    for name in _SIBLING_FILES:
        listed = _read_list(folder / f"cpu{processor}/topology" / name)
        if listed:
            return listed | {processor}
    return frozenset({processor})


def _read_list(path: Path) -> frozenset[int]:
    """Return the numbers in a file such as "0-3,8"; none if the file cannot be read."""
    try:
        parts = [part.split("-") for part in path.read_text().strip().split(",") if part]
        return frozenset(number for part in parts for number in range(int(part[0]), int(part[-1]) + 1))
    except (OSError, ValueError):
        return frozenset()
