"""Servers with one fault each, and the scrapes of them that an alert is tested with.

A recording is a list of pages, one for each scrape of `/metrics` of a live server. `replay` gives the scrapes
times that are `INTERVAL_S` apart, so a recording of a second stands for minutes. Shares, quantiles and gauges
stay what they were.
"""

import itertools
import resource
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import httpx
from prometheus_client.parser import text_string_to_metric_families

from support.batches import create_batch, ended, request_line
from support.http_server import DIM, MODEL, QUIET, HttpServer, SlowToLoad, serve_in_thread, wait_until
from support.server import live_server
from vecmill.config import BatchConfig, MillConfig, QueueConfig
from vecmill.engines.fake import FakeEngine, Fault, FaultScript
from vecmill.hardware.memory import read_memory_use
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import Embeddings
from vecmill.values.engine_plan import CostModel
from vecmill_server.base.settings import ServerSettings, TokenIds
from vecmill_server.telemetry.metrics import state_collectors
from vecmill_server.telemetry.siblings import merge_pages

INTERVAL_S = 30
STEPS = 45
HOUR = 3600 // INTERVAL_S  # in steps
JOB, INSTANCE = "vecmill", "localhost:7997"
POISON = 5_000
NATIVE_IDS = replace(QUIET, token_ids=TokenIds.NATIVE)
ONE_LANE = MillConfig(cores=1)


@dataclass
class Recording:
    """The scrapes of one server; `None` for a scrape that failed. `is_target` tells whether it is scraped."""

    pages: list[str | None] = field(default_factory=list)
    is_target: bool = True

    def scrape(self, url: str, times: int = 1) -> None:
        """Scrape the server, and let the page stand for so many scrapes."""
        try:
            page: str | None = httpx.get(f"{url}/metrics", timeout=10).text
        except httpx.TransportError:
            page = None
        self.pages += [page] * times

    def steps(self, server: HttpServer, act: Callable[[int], object], count: int = STEPS) -> None:
        """Call `act` and scrape, so many times."""
        for number in range(count):
            act(number)
            self.scrape(str(server.client.base_url))


def replay(recording: Recording, names: set[str]) -> dict[str, list[str]]:
    """The values of each series with one of the names, as promtool reads them, by the text of the series."""
    series: dict[str, list[str]] = {}
    target = f'job="{JOB}",instance="{INSTANCE}"'
    if recording.is_target:
        series[f"up{{{target}}}"] = [str(int(page is not None)) for page in recording.pages]
    for number, page in enumerate(recording.pages):
        for family in text_string_to_metric_families(page or ""):
            for sample in family.samples:
                if sample.name in names:
                    labels = "".join(f'{name}="{value}",' for name, value in sample.labels.items())
                    values = series.setdefault(f"{sample.name}{{{labels}{target}}}", [])
                    values += ["stale"] * (number - len(values)) + [repr(sample.value)]
    for values in series.values():
        values += ["stale"] * (len(recording.pages) - len(values))
    return series


def ask(server: HttpServer, number: int, count: int = 5) -> None:
    """Send so many requests of one text each, one after the other."""
    for place in range(count):
        server.client.post("/v1/embeddings", json={"input": f"text {number} {place}"})


@contextmanager
def clients(server: HttpServer, count: int) -> Iterator[None]:
    """Send requests from so many clients at once, until the block ends."""
    is_over = threading.Event()

    def send(client: int) -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            server.client.post("/v1/embeddings", json={"input": f"text {client} {number}"})

    with ThreadPoolExecutor(count) as pool:
        sent = [pool.submit(send, client) for client in range(count)]
        try:
            yield
        finally:
            is_over.set()
    for one in sent:
        one.result()


class SlowEngine(FakeEngine):
    """Each call takes `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(dim=DIM, lane_widths=(1,))
        self.seconds = seconds

    def run(self, batch: Batch, *, width: int) -> Embeddings:
        time.sleep(self.seconds)
        return super().run(batch, width=width)


class ExpensiveEngine(FakeEngine):
    """Each call is predicted to take 3 s."""

    def warm_up(self, texts: Sequence[TokenSequence] = ()) -> CostModel:
        return CostModel(fixed_s=3.0, per_token_s=0.1)


def record_health(folder: Path) -> Recording:
    """A server under load, with a few requests that clients got wrong, and a batch."""
    recording = Recording()
    with serve_in_thread(replace(NATIVE_IDS, batch_dir=folder)) as server:
        ended(server.client, create_batch(server.client, [request_line("a", {"input": "a"})]))

        def act(number: int) -> None:
            ask(server, number)
            server.client.post("/v1/embeddings", json={"input": []})
            server.client.get("/readyz")

        recording.steps(server, act)
    return recording


def record_stop(_folder: Path) -> Recording:
    """A server that ends."""
    recording = Recording()
    with serve_in_thread() as server:
        url = str(server.client.base_url)
        recording.steps(server, partial(ask, server), 10)
    recording.scrape(url, STEPS - 10)
    return recording


def record_nothing(_folder: Path) -> Recording:
    """No server that Prometheus knows."""
    return Recording([None] * STEPS, is_target=False)


def record_loading(_folder: Path) -> Recording:
    """A model that does not finish to load. Probes get 503."""
    recording, engine = Recording(), SlowToLoad()
    with serve_in_thread(engine=engine, wait=False) as server:
        try:
            recording.steps(server, lambda _: server.client.get("/readyz"))
        finally:
            engine.may_load.set()
        wait_until(lambda: server.client.get("/readyz").status_code == 200)
    return recording


def record_lost_lane(_folder: Path) -> Recording:
    """A lane whose device is lost, after hundreds of requests that were answered."""
    recording = Recording()
    healthy = 200
    faults = FaultScript(calls={healthy: Fault.DEVICE})
    engine = FakeEngine(dim=DIM, lane_widths=(1,), faults=faults)
    with serve_in_thread(config=ONE_LANE, engine=engine) as server:
        recording.steps(server, lambda number: ask(server, number, 20), 10)
        while server.metric("vecmill_lane_state", model=MODEL, lane="0", state="dead") == 0:
            ask(server, len(engine.calls), 1)
        recording.scrape(str(server.client.base_url), STEPS - 10)
    return recording


def record_failing_engine(_folder: Path) -> Recording:
    """An engine that fails in three of ten calls."""
    recording = Recording()
    engine = FakeEngine(dim=DIM, faults=FaultScript(share=0.3, seed=1))
    with serve_in_thread(engine=engine) as server:
        recording.steps(server, partial(ask, server))
    return recording


def record_overload(_folder: Path) -> Recording:
    """A queue of one text, and eight clients."""
    recording = Recording()
    config = MillConfig(cores=1, queue=QueueConfig(max_queue_texts=1))
    with serve_in_thread(config=config, engine=SlowEngine(0.01)) as server, clients(server, 8):
        recording.steps(server, lambda _: time.sleep(0.05))
    return recording


def record_long_queue(_folder: Path) -> Recording:
    """An engine that does not return, and texts that wait for it."""
    recording = Recording()
    engine = ExpensiveEngine(dim=DIM, lane_widths=(1,), faults=FaultScript(calls={0: Fault.HANG}))
    config = MillConfig(
        cores=1,
        hang_s=1e6,
        batch=BatchConfig(max_batch_tokens=8),
        queue=QueueConfig(target_wait_s=1e6, timeout_s=1e6),
    )
    with serve_in_thread(config=config, engine=engine) as server, ThreadPoolExecutor(4) as pool:
        sent = [pool.submit(ask, server, number, 1) for number in range(4)]
        wait_until(lambda: server.metric("vecmill_queue_texts", model=MODEL) >= 2)
        recording.steps(server, lambda _: None)
        engine.released.set()
        for one in sent:
            one.result()
    return recording


def record_slow_engine(_folder: Path) -> Recording:
    """An engine that needs 2.6 s for each call."""
    recording = Recording()
    config = MillConfig(cores=1, queue=QueueConfig(target_wait_s=1e6))
    with serve_in_thread(config=config, engine=SlowEngine(2.6)) as server, clients(server, 32):
        recording.steps(server, lambda _: time.sleep(0.3))
    return recording


def record_full_memory(folder: Path) -> Recording:
    """A container that uses 950 of its 1000 MB."""
    group = folder / "sys/fs/cgroup/pod"
    group.mkdir(parents=True)
    (folder / "proc/self").mkdir(parents=True)
    (folder / "proc/self/cgroup").write_text("0::/pod\n")
    for name, text in (("max", "1000000000"), ("current", "950000000"), ("stat", "inactive_file 0")):
        (group / f"memory.{name}").write_text(text)
    recording = Recording()
    of_container = partial(read_memory_use, folder)
    with patch.object(state_collectors, "read_memory_use", of_container), serve_in_thread() as server:
        recording.steps(server, partial(ask, server))
    return recording


def record_few_descriptors(folder: Path) -> Recording:
    """A process that may open only a few more files."""
    recording = Recording()
    with live_server(folder, arguments=["--engine", "fake"]) as server:
        opened = len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))
        limit = opened + 4
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (limit, limit))
        recording.scrape(server.url, STEPS)
    return recording


def record_restarts(folder: Path) -> Recording:
    """A server that is started three times."""
    recording = Recording()
    for _ in range(3):
        with live_server(folder, arguments=["--engine", "fake"]) as server:
            recording.scrape(server.url, STEPS // 3)
    return recording


def record_dropped_lines(_folder: Path) -> Recording:
    """A log that drops lines."""
    recording = Recording()
    with serve_in_thread() as server:
        recording.steps(server, partial(ask, server), 10)
        server.service.metrics.watch_log(lambda: 12)
        recording.steps(server, partial(ask, server), STEPS - 10)
    return recording


def record_failing_lines(folder: Path) -> Recording:
    """Batches in which half of the lines fail."""
    recording = Recording()
    engine = FakeEngine(dim=DIM, faults=FaultScript(poison=frozenset({POISON})))
    settings: ServerSettings = replace(NATIVE_IDS, batch_dir=folder)
    with serve_in_thread(settings, engine=engine) as server:
        lines = [request_line("good", {"input": "a"}), request_line("bad", {"input": [[POISON]]})]

        def act(number: int) -> None:
            if number % 10 == 5:
                ended(server.client, create_batch(server.client, lines))

        recording.steps(server, act)
    return recording


def record_missing_process(_folder: Path) -> Recording:
    """Two processes, of which one does not answer, as the page of the other tells."""
    recording = Recording()
    with serve_in_thread() as server:
        page = server.client.get("/metrics").text.encode()
    for missing in ((), (1,)):
        pages = {number: page for number in (0, 1) if number not in missing}
        recording.pages += [merge_pages(pages, missing).decode()] * (STEPS // 2)
    return recording


def record_some_failures(share: float, steps: int) -> Recording:
    """An engine that fails in a few of the calls, for so many scrapes."""
    recording = Recording()
    every = round(1 / share)
    failing = range(every, 10 * steps, every)
    engine = FakeEngine(dim=DIM, faults=FaultScript(calls=dict.fromkeys(failing, Fault.RAISE)))
    with serve_in_thread(engine=engine) as server:
        recording.steps(server, partial(ask, server), steps)
    return recording


def record_late_answers(share: float, steps: int) -> Recording:
    """A server whose metrics say that a few of the answers were late, for so many scrapes."""
    recording = Recording()
    with serve_in_thread() as server:
        numbers = itertools.count(1)

        def act(_step: int) -> None:
            for number in itertools.islice(numbers, 20):
                is_late = number % round(1 / share) == 0
                server.service.metrics.request_done("embeddings", 200, 1.5 if is_late else 0.05)

        recording.steps(server, act, steps)
    return recording


Record = Callable[[Path], Recording]

# The fault that each alert is for.
FAULTS: dict[str, Record] = {
    "VecmillDown": record_stop,
    "VecmillAbsent": record_nothing,
    "VecmillModelNotReady": record_loading,
    "VecmillLaneLost": record_lost_lane,
    "VecmillErrors": record_failing_engine,
    "VecmillRefusals": record_overload,
    "VecmillQueueLong": record_long_queue,
    "VecmillSlow": record_slow_engine,
    "VecmillMemory": record_full_memory,
    "VecmillDescriptors": record_few_descriptors,
    "VecmillRestarts": record_restarts,
    "VecmillLogLinesDropped": record_dropped_lines,
    "VecmillBatchLinesFailing": record_failing_lines,
    "VecmillProcessMissing": record_missing_process,
    "VecmillFailedRequestsFast": lambda _folder: record_some_failures(1 / 40, HOUR),
    "VecmillLateRequestsFast": lambda _folder: record_late_answers(1 / 5, HOUR),
    "VecmillFailedRequestsSlowly": lambda _folder: record_some_failures(1 / 100, 6 * HOUR),
    "VecmillLateRequestsSlowly": lambda _folder: record_late_answers(1 / 10, 6 * HOUR),
}


def duration(recordings: Sequence[Recording]) -> str:
    """The time that the longest of the recordings stands for, as Prometheus writes it."""
    return f"{max(len(one.pages) for one in recordings) * INTERVAL_S}s"
