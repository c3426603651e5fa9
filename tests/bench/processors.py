"""The processors that contestants are pinned to."""

import os
from collections.abc import Sequence
from pathlib import Path

SYSTEM = Path("/sys/devices/system/cpu")


def list_processors(usable: Sequence[int] | None = None, system: Path = SYSTEM) -> list[int]:
    """Return the processors that this process may use: one of each physical core, then their siblings."""
    numbers = sorted(os.sched_getaffinity(0) if usable is None else usable)
    first: dict[tuple[str, str], int] = {}
    for number in numbers:
        first.setdefault(_core(number, system), number)
    of_cores = list(first.values())
    return of_cores + [number for number in numbers if number not in of_cores]


def count_physical_cores(processors: Sequence[int], system: Path = SYSTEM) -> int:
    """Return the number of physical cores that these processors are of."""
    return len({_core(number, system) for number in processors})


def pinned(processors: Sequence[int]) -> list[str]:
    """Return the start of a command line that runs a command on these processors only."""
    return ["taskset", "--cpu-list", ",".join(map(str, processors))]


def _core(number: int, system: Path) -> tuple[str, str]:
    topology = system / f"cpu{number}" / "topology"
    try:
        package = (topology / "physical_package_id").read_text("ascii").strip()
        return package, (topology / "core_id").read_text("ascii").strip()
    except OSError:
        return "", f"processor {number}"
