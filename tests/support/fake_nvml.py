"""A stand-in for NVML's binding, because no machine of the tests has a GPU."""

import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any, Self

import pytest

GIB = 1024**3


class NVMLError(Exception):
    """NVML's base class of errors."""


@dataclass
class FakeNvml:
    """The functions of `pynvml` that are used. GPU 1 does not measure its use, and GPU 2 was lost."""

    inits: int = 0
    error: Exception | None = None
    used: dict[int, int] = field(default_factory=lambda: {0: 3 * GIB, 1: GIB})

    @classmethod
    def install(cls, monkeypatch: pytest.MonkeyPatch) -> Self:
        """Return a stand-in that `import pynvml` finds until the test ends."""
        fake = cls()
        monkeypatch.setitem(sys.modules, "pynvml", fake.module())
        return fake

    def module(self) -> ModuleType:
        found = ModuleType("pynvml")
        names: dict[str, Any] = {
            "NVMLError": NVMLError,
            "nvmlInit": self.init,
            "nvmlDeviceGetCount": lambda: 3,
            "nvmlDeviceGetHandleByIndex": self.handle,
            "nvmlDeviceGetMemoryInfo": lambda gpu: SimpleNamespace(total=80 * GIB, used=self.used[gpu]),
            "nvmlDeviceGetUtilizationRates": self.rates,
        }
        for name, value in names.items():
            setattr(found, name, value)
        return found

    def init(self) -> None:
        self.inits += 1
        if self.error is not None:
            raise self.error

    def handle(self, number: int) -> int:
        if number == 2:
            raise NVMLError("GPU is lost")
        return number

    def rates(self, gpu: int) -> SimpleNamespace:
        if gpu == 1:
            raise NVMLError("Not Supported")
        return SimpleNamespace(gpu=37, memory=12)
