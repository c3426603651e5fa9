"""The table `[deploy]` of the configuration file.

`vecmill deploy render` reads the table. `vecmill serve` checks the table, and otherwise ignores it.
"""

from dataclasses import dataclass
from pathlib import Path

from vecmill.config import setting
from vecmill.errors import InvalidConfig


@dataclass(frozen=True, slots=True)
class DeploySettings:
    """The settings of a deployment. Raises `InvalidConfig` if a value is invalid."""

    image: str = setting("vecmill:cpu", "The image of the containers (compose, helm, ray).")
    replicas: int = setting(1, "The number of servers that run at the same time (helm, ray).")
    cores: int | None = setting(None, "The cores of each server; by default all of the machine.")
    memory_mib: int | None = setting(None, "The memory of each server, in MiB; by default without a limit.")
    gpus: int = setting(0, "The GPUs of each server.")
    cache_gib: int = setting(20, "The size of the volume of models, in GiB (helm).")
    program: Path = setting(Path("/opt/vecmill/bin/vecmill"), "The program `vecmill` (systemd).")

    def __post_init__(self) -> None:
        for name in ("replicas", "cores", "memory_mib", "cache_gib"):
            value = getattr(self, name)
            _require(value is None or value >= 1, f"{name} must be at least 1")
        _require(self.gpus >= 0, "gpus must not be negative")
        _require(bool(self.image.strip()), "image must not be empty")
        _require(self.program.is_absolute(), "program must be an absolute path")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidConfig(f"deploy.{message}.")
