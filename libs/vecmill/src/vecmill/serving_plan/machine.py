"""The machine and the package versions for which a measurement is valid."""

import hashlib
import json
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Self

from vecmill.engines import ENGINES
from vecmill.hardware.cores import available_cores
from vecmill.hardware.processor import processor_model, processor_name


@dataclass(frozen=True, slots=True)
class Machine:
    """The properties of a machine that speeds depend on. `processor` is vecmill's name for the type."""

    processor: str
    processor_model: str
    cores: int
    system: str

    @classmethod
    def current(cls) -> Self:
        """Return this machine, with the cores that this process may use."""
        return cls(processor_name(), processor_model(), available_cores(), platform.system())

    @property
    def fingerprint(self) -> str:
        """A hash of the properties: 16 hexadecimal digits."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


def runtime_versions(engines: Iterable[str]) -> dict[str, str]:
    """Return the versions of vecmill and of the installed packages that `engines` need, by name."""
    modules = {module for engine in engines if engine in ENGINES for module in ENGINES[engine].needs}
    found = {}
    for distribution in ("vecmill", *sorted(modules)):
        try:
            found[distribution] = version(distribution)
        except PackageNotFoundError:
            continue  # a module whose distribution has another name
    return found
