"""Measures the memory of this process, and the memory that is still available."""

import math
import mmap
from dataclasses import dataclass
from pathlib import Path

from vecmill.hardware.cores import list_control_groups
from vecmill.hardware.system_calls import find_c_function

_ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The memory in use and its limit, in bytes: of the container, or of the machine without a container."""

    used_bytes: int
    limit_bytes: int


def read_memory_use(root: Path = _ROOT) -> MemoryUse | None:
    """Return the memory in use and the limit; `None` if both are unknown. `root` contains /proc and /sys.

    The limit is the smallest of the process's control groups, version 1 or 2. Their cached files that can be
    freed do not count as used. Without a limit below the memory of the machine, both are the machine's.
    """
    machine = _read_fields(root / "proc/meminfo")
    total, available = machine.get("MemTotal:"), machine.get("MemAvailable:")
    found = _read_limited_groups(root)
    if total is not None and available is not None:
        found.append(MemoryUse(total - available, total))
    return min(found, key=lambda use: use.limit_bytes, default=None)


def mapped_mb(root: Path = _ROOT) -> float:
    """Return the memory of this process (resident set size) in MB, 0 if it is unknown.

    Takes microseconds. Pages that processes share count in each of them, unlike in `resident_mb`.
    """
    try:
        pages = int((root / "proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0.0
    return pages * mmap.PAGESIZE / 1e6


def resident_mb() -> float | None:
    """Return the memory of this process (proportional set size) in MB, or `None` if it is unknown."""
    found = _read_fields(Path("/proc/self/smaps_rollup")).get("Pss:")
    return None if found is None else found / 1e6


def available_mb(root: Path = _ROOT) -> float | None:
    """Return the memory in MB that is available without swapping, or `None` if it is unknown.

    The result is the smallest of the machine's available memory and that of each of the process's control
    groups, whose cached files count as available. `root` contains /proc and /sys.
    """
    found = [use.limit_bytes - use.used_bytes for use in _read_limited_groups(root)]
    machine = _read_fields(root / "proc/meminfo").get("MemAvailable:")
    if machine is not None:
        found.append(machine)
    return min(found) / 1e6 if found else None


def memory_limit_mb(root: Path = _ROOT) -> float | None:
    """Return the smallest limit of the process's control groups in MB, or `None` if there is no limit.

    Limits beyond the memory of the machine do not count.
    """
    total = _read_fields(root / "proc/meminfo").get("MemTotal:", math.inf)
    limits = [use.limit_bytes for use in _read_limited_groups(root) if use.limit_bytes < total]
    return min(limits) / 1e6 if limits else None


# The hierarchies of control groups, version 2 and 1: their names, folders, and the names of their files.
_VERSIONS = (
    ("", "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")),
    (
        "memory",
        "sys/fs/cgroup/memory",
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ),
)


def _read_limited_groups(root: Path) -> list[MemoryUse]:
    """Return the memory of each control group of the process that has a limit, version 1 or 2."""
    found = [
        _read_group(folder, *names)
        for hierarchy, mount, names in _VERSIONS
        for folder in list_control_groups(root, hierarchy, mount)
    ]
    return [use for use in found if use is not None]


def _read_group(folder: Path, limit_file: str, usage_file: str, cached_key: str) -> MemoryUse | None:
    """Return the memory of a control group; `None` if it has no limit ("max") or is of another version."""
    try:
        limit = int((folder / limit_file).read_text())
        used = int((folder / usage_file).read_text())
        counts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return MemoryUse(used - int(counts[cached_key]), limit)
    except (OSError, ValueError, KeyError):
        return None


def _read_fields(path: Path) -> dict[str, int]:
    """Return the fields of a file of /proc that are in kB, in bytes; empty if there is no such file."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {words[0]: int(words[1]) * 1024 for words in lines if len(words) == 3 and words[2] == "kB"}


# The parameter of glibc's `mallopt` for the number of arenas.
_ARENA_MAX = -8
LEAST_ARENAS = 2


def limit_arenas(cores: int) -> None:
    """Have all threads allocate from as many arenas of glibc as there are cores, at least 2.

    glibc allows eight for each core, and each keeps memory that was freed in it. Call it before threads
    start. Source: mallopt(3).
    """
    set_option = find_c_function("mallopt")  # musl has no such function
    if set_option is not None:
        set_option(_ARENA_MAX, max(cores, LEAST_ARENAS))


def return_freed_memory() -> None:
    """Return memory that was freed to the system, after work that took much; glibc would keep it."""
    trim = find_c_function("malloc_trim")
    if trim is not None:
        trim(0)
