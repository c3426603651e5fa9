"""The metrics of the process and its machine: versions, processor time, open files and memory."""

import platform
from collections.abc import Iterable
from importlib.metadata import version

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from vecmill.hardware.memory import read_memory_use
from vecmill_server import __version__
from vecmill_server.telemetry.metrics import definitions


def add_process_metrics(registry: CollectorRegistry) -> None:
    """Add the memory, processor time and open files of the process (Linux only), and its versions."""
    ProcessCollector(registry=registry)
    build = definitions.BUILD_INFO.create(registry)
    build.labels(__version__, version("vecmill"), platform.python_version()).set(1)
    registry.register(MemoryCollector())


class MemoryCollector(Collector):
    """A collector of the memory in use, and of its limit."""

    def collect(self) -> Iterable[Metric]:
        found = read_memory_use()
        if found is None:  # not Linux
            return ()
        used, limit = definitions.MEMORY_USED.family(), definitions.MEMORY_LIMIT.family()
        used.add_metric((), found.used_bytes)
        limit.add_metric((), found.limit_bytes)
        return used, limit
