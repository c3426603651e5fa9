"""The collectors that read values at each scrape: of models, the log, the process, API keys and GPUs."""

import importlib
import logging
import platform
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from vecmill.batching.ticket import CountsSnapshot
from vecmill.errors import NotReady
from vecmill.hardware.memory import read_memory_use
from vecmill.mill import Mill
from vecmill_server import __version__
from vecmill_server.catalog.catalog import ModelState, ServedModel
from vecmill_server.telemetry.metrics import definitions
from vecmill_server.telemetry.metrics.definitions import Outcome, ProcessState

logger = logging.getLogger(__name__)


class QueueCollector(Collector):
    """A collector that reads the queue of every model at each scrape, instead of counting events.

    The counts of one model come from one snapshot, so at every scrape the admitted texts are the sum of the
    finished and the open texts. Counters that follow events one after the other would differ by the texts
    that are between two events.
    """

    def __init__(self) -> None:
        self.models: list[ServedModel] = []
        # The counts of the mills that each model had before.
        self._earlier: dict[str, CountsSnapshot] = {}

    def keep_counts(self, model: str, mill: Mill) -> None:
        """Go on counting from the counts of a mill that another mill takes the place of."""
        self._earlier[model] = self._earlier.get(model, CountsSnapshot()) + mill.text_counts

    def collect(self) -> Iterable[Metric]:
        admitted = definitions.TEXTS_ADMITTED.family()
        finished = definitions.TEXTS_FINISHED.family()
        joined = definitions.TEXTS_JOINED.family()
        open_texts = definitions.TEXTS_OPEN.family()
        running = definitions.TEXTS_RUNNING.family()
        texts = definitions.QUEUE_TEXTS.family()
        tokens = definitions.QUEUE_TOKENS.family()
        seconds = definitions.QUEUE_SECONDS.family()
        for served in self.models:
            model, mill = served.name, served.mill
            counts = mill.text_counts
            if model in self._earlier:
                counts += self._earlier[model]
            admitted.add_metric((model,), counts.admitted)
            for outcome in Outcome:
                finished.add_metric((model, outcome), getattr(counts, outcome))
            joined.add_metric((model,), counts.joined)
            open_texts.add_metric((model,), counts.open)
            running.add_metric((model,), counts.open - counts.waiting)
            texts.add_metric((model,), counts.waiting)
            tokens.add_metric((model,), counts.waiting_tokens)
            seconds.add_metric((model,), mill.backlog.seconds)
        of_queues = (admitted, finished, joined, open_texts, running, texts, tokens, seconds)
        return (*of_queues, *self._describe_states(), self._describe_models())

    def devices(self) -> Iterator[str]:
        """Yield the device of each loaded model."""
        for model in self.models:
            with suppress(NotReady):
                yield model.mill.info.device

    def _describe_states(self) -> tuple[Metric, Metric]:
        ready, states = definitions.MODEL_READY.family(), definitions.MODEL_STATE.family()
        for model in self.models:
            ready.add_metric((model.name,), model.is_ready)
            current = model.state
            for state in ModelState:
                states.add_metric((model.name, state), state is current)
        return ready, states

    def _describe_models(self) -> Metric:
        served = definitions.MODEL_INFO.family()
        for model in self.models:
            with suppress(NotReady):
                info, task = model.mill.info, model.mill.description.task
                served.add_metric((model.name, task, info.name, info.precision, info.device), 1)
        return served


class LogCollector(Collector):
    """A collector of the number of dropped log lines."""

    def __init__(self) -> None:
        self.dropped: Callable[[], int] = int  # 0

    def collect(self) -> Iterable[Metric]:
        family = definitions.LOG_LINES_DROPPED.family()
        family.add_metric((), self.dropped())
        return (family,)


def add_process_metrics(registry: CollectorRegistry) -> None:
    """Add the memory, processor time and open files of the process (Linux only), and its versions."""
    ProcessCollector(registry=registry)
    build = definitions.BUILD_INFO.create(registry)
    build.labels(__version__, version("vecmill"), platform.python_version()).set(1)
    processes = definitions.PROCESSES.create(registry)
    for state, count in ((ProcessState.ANSWERING, 1), (ProcessState.MISSING, 0)):
        processes.labels(state).set(count)
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


class KeyModel(NamedTuple):
    """The owner of a key, and a model."""

    owner: str
    model: str


class Use(NamedTuple):
    """What an owner has used of a model since `began_at`, in Unix seconds."""

    texts: int
    tokens: int
    began_at: float


class KeyUse:
    """The texts and tokens of each owner and model. Used on the event loop only.

    The label `key` has the name of the key's owner, never the key. Keys of `--api-key` have no name, so `key`
    is empty. Work counts when it is complete: an answer is written, or the result of a batch line is stored.
    Refused and failed requests, and requests that no engine computes, such as `/tokenize`, do not count. A
    text that shares the computation of an identical text counts in full, like `usage` in the response.

    There may be many thousand owners. Therefore the counts are in a dictionary, which is copied in one step,
    and become metrics only when a page is written.
    """

    def __init__(self, wall_clock: Callable[[], float] = time.time) -> None:
        self._wall_clock = wall_clock
        self._used: dict[KeyModel, Use] = {}

    def add(self, owner: str, model: str, texts: int, tokens: int) -> None:
        """Count complete work of the owner of a key."""
        key = KeyModel(owner, model)
        used = self._used.get(key) or Use(0, 0, self._wall_clock())
        self._used[key] = Use(used.texts + texts, used.tokens + tokens, used.began_at)

    def copy(self) -> Mapping[KeyModel, Use]:
        """Return all counts as they are now."""
        return self._used.copy()


def key_families(used: Mapping[KeyModel, Use]) -> Iterable[Metric]:
    """Return the metrics of these counts."""
    texts, tokens = definitions.KEY_TEXTS.family(), definitions.KEY_TOKENS.family()
    for key, use in used.items():
        texts.add_metric(key, use.texts, use.began_at)
        tokens.add_metric(key, use.tokens, use.began_at)
    return texts, tokens


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
    """A collector of the last reading of each NVIDIA GPU; without metrics until `read` has found a GPU.

    NVML's binding, the package nvidia-ml-py, is imported when a model has been loaded on an NVIDIA GPU, so
    other servers neither need nor load it. A reading may take some milliseconds, so `read` is called in a
    thread, and `collect` reports the last reading. All GPUs that NVML lists are reported, since NVML's
    numbers are not those of CUDA. In a container, these are the GPUs of the container.
    """

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
