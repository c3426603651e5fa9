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


def available_mb() -> float | None:
    """Memory in MB that could be had without swapping; `None` where nobody tells."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = next((line for line in lines if line.startswith("MemAvailable:")), None)
    return None if found is None else int(found.split()[1]) * 1024 / 1e6


def _processor_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    pairs = (line.partition(":") for line in lines)
    models = (value.strip() for key, _, value in pairs if key.strip() in _PROCESSOR_KEYS)
    return next(models, platform.processor() or platform.machine())
