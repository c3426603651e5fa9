"""The page of metrics: a copy of all counts, which is made in one step, and its text.

How it works. `ServerMetrics.copy` copies the counts on the event loop, in 1 to 2 ms with one model. The rest
takes longer, and is done in a thread with the copy: the values of the process and its machine are read from
the operating system, and the text is written.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from vecmill_server.telemetry.metrics.gpus import GpuCollector
from vecmill_server.telemetry.metrics.key_use import KeyModel, Use, key_families

TEXT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
OPENMETRICS_TYPE = openmetrics.CONTENT_TYPE_LATEST


@dataclass(frozen=True, slots=True)
class MetricsCopy:
    """All counts as they were at one moment, and the collectors that read the process and its machine.

    `key_use` is `None` without API keys. `gpus` is `None` if no model runs on an NVIDIA GPU.
    """

    counts: tuple[Metric, ...]
    key_use: Mapping[KeyModel, Use] | None
    machine: CollectorRegistry
    gpus: GpuCollector | None

    def families(self) -> list[Metric]:
        """Return all metrics. Reads files of the operating system and the GPUs, so call it in a thread."""
        if self.gpus is not None:
            self.gpus.read()
        of_keys = () if self.key_use is None else key_families(self.key_use)
        return [*self.counts, *of_keys, *self.machine.collect()]


@dataclass(frozen=True, slots=True)
class _Families(Collector):
    families: Sequence[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.families


def write_text(families: Sequence[Metric]) -> bytes:
    """Return the page in the text format of Prometheus, `TEXT_TYPE`. It has no exemplars."""
    return generate_latest(_Families(families))


def write_openmetrics(families: Sequence[Metric]) -> bytes:
    """Return the page in the format OpenMetrics, `OPENMETRICS_TYPE`."""
    # The default escaping replaces the colon in the names of samples, which is valid in vLLM's names.
    page: bytes = openmetrics.generate_latest(_Families(families), escaping=openmetrics.ALLOWUTF8)  # type: ignore[no-untyped-call]
    return page
