"""Counts the cores that this process may use.

The count respects the affinity mask (`taskset`, Kubernetes' static CPU policy) and the quota of the control
group, version 1 or 2 (`docker --cpus`, Kubernetes' limits).
"""

import math
import os
from pathlib import Path


def available_cores(root: Path = Path("/")) -> int:
    """Return the number of cores that this process may use, at least 1. `root` contains /proc and /sys."""
    cores = len(usable_processors())
    quota = _cgroup_quota(root)
    return cores if quota is None else max(1, min(cores, math.floor(quota)))


def usable_processors() -> frozenset[int]:
    """Return the numbers of the processors that this process may run on."""
    # macOS and Windows have no affinity mask.
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


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
