"""The memory and the use of NVIDIA GPUs, read through NVML for each page.

NVML's binding, the package nvidia-ml-py, is imported when a model has been loaded on an NVIDIA GPU, so other
servers neither need nor load it. A reading may take some milliseconds, so `read` is called in a thread, and
`collect` reports the last reading. All GPUs that NVML lists are reported, since NVML's numbers are not those
of CUDA. In a container, these are the GPUs of the container.
"""

import importlib
import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from vecmill_server.telemetry.metrics import definitions

logger = logging.getLogger(__name__)

_BINDING = "pynvml"
# The beginnings of the names of NVIDIA devices.
_NVIDIA = ("cuda", "tensorrt")


@dataclass(frozen=True, slots=True)
class GpuReading:
    """The state of one GPU. `busy` is a fraction; `None` if the GPU does not measure it."""

    number: int
    used_bytes: int
    total_bytes: int
    busy: float | None


class GpuCollector(Collector):
    """A collector of the last reading of each GPU; without metrics until `read` has found a GPU."""

    def __init__(self, devices: Callable[[], Iterable[str]]) -> None:
        """`devices` returns the device of each loaded model, such as `cuda:0`."""
        self._devices = devices
        self._nvml: Any = None
        self._is_broken = False
        self._lock = threading.Lock()  # pages of several formats may be written side by side
        self._readings: tuple[GpuReading, ...] = ()

    @property
    def is_needed(self) -> bool:
        """True if a model runs on an NVIDIA GPU and NVML has not failed to load."""
        return not self._is_broken and any(device.startswith(_NVIDIA) for device in self._devices())

    def read(self) -> None:
        """Read all GPUs. Call this in a thread, if `is_needed`. Errors are logged once."""
        with self._lock:
            if self._nvml is None:
                self._load()
            if self._nvml is not None:
                self._readings = tuple(self._read_all())

    def collect(self) -> Iterable[Metric]:
        if not self._readings:
            return ()
        used, total = definitions.GPU_MEMORY_USED.family(), definitions.GPU_MEMORY_TOTAL.family()
        busy = definitions.GPU_BUSY.family()
        for reading in self._readings:
            number = (str(reading.number),)
            used.add_metric(number, reading.used_bytes)
            total.add_metric(number, reading.total_bytes)
            if reading.busy is not None:
                busy.add_metric(number, reading.busy)
        return used, total, busy

    def _load(self) -> None:
        try:
            nvml = importlib.import_module(_BINDING)
            nvml.nvmlInit()
        except Exception as error:  # NVML's errors are known only if its binding could be imported
            self._is_broken = True
            logger.warning("the metrics have no GPU memory and use, because NVML cannot be loaded: %s", error)
        else:
            self._nvml = nvml

    def _read_all(self) -> Iterable[GpuReading]:
        nvml = self._nvml
        for number in range(nvml.nvmlDeviceGetCount()):
            with suppress(nvml.NVMLError):  # a GPU that was lost has no reading
                gpu = nvml.nvmlDeviceGetHandleByIndex(number)
                memory = nvml.nvmlDeviceGetMemoryInfo(gpu)
                yield GpuReading(number, memory.used, memory.total, self._read_busy(gpu))

    def _read_busy(self, gpu: Any) -> float | None:
        try:
            return float(self._nvml.nvmlDeviceGetUtilizationRates(gpu).gpu) / 100
        except self._nvml.NVMLError:  # not supported, for example on a GPU that is divided by MIG
            return None
