"""What a measurement is bound to: the machine that it was made on, and the versions of what ran."""

import hashlib
import json
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Self

from vecmill.cores import available_cores
from vecmill.engines import ENGINES
from vecmill.engines.prepared import processor_name

CONTROL_GROUP = Path("/sys/fs/cgroup")

_PROCESSOR_KEYS = ("model name", "Model", "Processor")


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine as far as speeds depend on it. `processor` is our own name for its type."""

    processor: str
    processor_model: str
    cores: int
    system: str

    @classmethod
    def here(cls) -> Self:
        """This machine, with the cores that this process may use."""
        return cls(processor_name(), _processor_model(), available_cores(), platform.system())

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits; equal for machines on which the same plan is best."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


def runtime_versions(engines: Iterable[str]) -> dict[str, str]:
    """The versions of vecmill and of what `engines` run on, those that are installed."""
    modules = {module for engine in engines if engine in ENGINES for module in ENGINES[engine].needs}
    found = {}
    for distribution in ("vecmill", *sorted(modules)):
        try:
            found[distribution] = version(distribution)
        except PackageNotFoundError:
            continue  # a module of another name than its distribution
    return found


def resident_mb() -> float | None:
    """Memory of this process in MB, shared pages counted by their share; `None` where nobody tells."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    found = next((line for line in lines if line.startswith("Pss:")), None)
    return None if found is None else int(found.split()[1]) * 1024 / 1e6


def available_mb(group: Path = CONTROL_GROUP) -> float | None:
    """Memory in MB that could be had without swapping; `None` where nobody tells.

    Of the machine, or of the control group (version 2) in `group`, where that is less.
    """
    found = [free for free in (_free_of_machine_mb(), _free_of_group_mb(group)) if free is not None]
    return min(found, default=None)


def _free_of_machine_mb() -> float | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = next((line for line in lines if line.startswith("MemAvailable:")), None)
    return None if found is None else int(found.split()[1]) * 1024 / 1e6


def _free_of_group_mb(folder: Path) -> float | None:
    """What the group may still take: files that it has read may make room."""
    try:
        limit, used = (folder / "memory.max").read_text(), (folder / "memory.current").read_text()
        counts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return (int(limit) - int(used) + int(counts["inactive_file"])) / 1e6
    except (OSError, ValueError, KeyError):
        return None  # no group, no limit ("max"), or another version


def _processor_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    pairs = (line.partition(":") for line in lines)
    models = (value.strip() for key, _, value in pairs if key.strip() in _PROCESSOR_KEYS)
    return next(models, platform.processor() or platform.machine())
