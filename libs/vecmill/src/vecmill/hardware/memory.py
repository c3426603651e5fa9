"""Measures the memory of this process, and the memory that is still available."""

from pathlib import Path

CONTROL_GROUP = Path("/sys/fs/cgroup")


def resident_mb() -> float | None:
    """Return the memory of this process (proportional set size) in MB, or `None` if it is unknown."""
    return _read_mb("/proc/self/smaps_rollup", "Pss:")


def available_mb(group: Path = CONTROL_GROUP) -> float | None:
    """Return the memory in MB that is available without swapping, or `None` if it is unknown.

    The result is the smaller of the machine's available memory and that of the control group (version 2) in
    `group`.
    """
    machine = _read_mb("/proc/meminfo", "MemAvailable:")
    found = [free for free in (machine, _free_of_group_mb(group)) if free is not None]
    return min(found, default=None)


def memory_limit_mb(group: Path = CONTROL_GROUP) -> float | None:
    """Return the limit of the control group (version 2) in `group` in MB, or `None` if there is no limit."""
    try:
        return int((group / "memory.max").read_text()) / 1e6
    except (OSError, ValueError):
        return None


def _read_mb(path: str, key: str) -> float | None:
    """Return the field `key`, in kB, of a file of /proc in MB."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    found = next((line for line in lines if line.startswith(key)), None)
    return None if found is None else int(found.split()[1]) * 1024 / 1e6


def _free_of_group_mb(folder: Path) -> float | None:
    """Return the memory that the group may still use; its cached files count as free."""
    try:
        limit, used = (folder / "memory.max").read_text(), (folder / "memory.current").read_text()
        counts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return (int(limit) - int(used) + int(counts["inactive_file"])) / 1e6
    except (OSError, ValueError, KeyError):
        return None  # no group, no limit ("max"), or another version
