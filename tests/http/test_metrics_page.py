"""The page of metrics is shared by all who ask within a second; the event loop only copies the counts."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from prometheus_client import Gauge
from prometheus_client.metrics_core import Metric
from starlette.routing import Route

from support.http_server import MODEL, QUIET, HttpServer, build_service, serve_in_thread, wait_until
from vecmill.directory_layouts import describe_model
from vecmill.models import locate_model
from vecmill_server.app.routes.prometheus import (
    OPENMETRICS,
    OPENMETRICS_TYPE,
    PAGE_AGE_S,
    TEXT_TYPE,
    metrics_routes,
)
from vecmill_server.telemetry.metrics import state_collectors
from vecmill_server.telemetry.metrics.server_metrics import MetricsCopy, ServerMetrics
from vecmill_server.telemetry.siblings import Siblings, open_page_sockets

ADMITTED = "vecmill_texts_admitted_total"


class SetClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


class Copies:
    """The copies of counts and the written pages, by the threads that made them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.copied: list[str] = []
        self.written: list[str] = []
        copy, families = ServerMetrics.copy, MetricsCopy.families

        def counting_copy(metrics: ServerMetrics) -> MetricsCopy:
            self.copied.append(threading.current_thread().name)
            return copy(metrics)

        def counting_families(copied: MetricsCopy) -> list[Metric]:
            self.written.append(threading.current_thread().name)
            return families(copied)

        monkeypatch.setattr(ServerMetrics, "copy", counting_copy)
        monkeypatch.setattr(MetricsCopy, "families", counting_families)


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def server(clock: SetClock) -> Iterator[HttpServer]:
    with serve_in_thread(page_clock=clock) as server:
        yield server


def scrape(server: HttpServer, accept: str = "text/plain") -> httpx.Response:
    return server.client.get("/metrics", headers={"accept": accept})


def admitted(page: str) -> float:
    (line,) = [line for line in page.splitlines() if line.startswith(f'{ADMITTED}{{model="{MODEL}"}}')]
    return float(line.rpartition(" ")[2])


@pytest.mark.promise("counts-agree")
@pytest.mark.parametrize("accept", ["text/plain", OPENMETRICS])
def test_a_page_is_a_second_old_at_most(server: HttpServer, clock: SetClock, accept: str) -> None:
    assert admitted(scrape(server, accept).text) == 0
    assert server.is_well()
    clock.now += 0.99 * PAGE_AGE_S
    assert admitted(scrape(server, accept).text) == 0
    clock.now += 0.01 * PAGE_AGE_S
    assert admitted(scrape(server, accept).text) == 1


@pytest.mark.promise("loop-responsive")
def test_counts_are_copied_once_on_the_loop_and_written_in_another_thread(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = Copies(monkeypatch)
    with ThreadPoolExecutor(8) as pool:
        pages = {answer.text for answer in pool.map(lambda _: scrape(server), range(100))}
    assert len(pages) == 1
    assert copies.copied == ["http-server"]
    assert copies.written == ["vecmill-metrics"]


def test_each_format_has_a_page_of_its_own(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = Copies(monkeypatch)
    for _ in range(3):
        text, openmetrics = scrape(server), scrape(server, OPENMETRICS)
        assert text.headers["content-type"] == TEXT_TYPE
        assert openmetrics.headers["content-type"] == OPENMETRICS_TYPE
        assert openmetrics.text.endswith("# EOF\n")
        assert "# EOF" not in text.text
        assert server.client.head("/metrics").headers["content-length"] == str(len(text.content))
    assert len(copies.copied) == 2


class Memory:
    """The memory of the machine, read when the test lets it, or not at all."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_end = threading.Event()
        self.is_readable = True
        self.readings = 0
        monkeypatch.setattr(state_collectors, "read_memory_use", self.read)

    def read(self) -> None:
        self.readings += 1
        is_readable = self.is_readable
        assert self.may_end.wait(20.0)
        if not is_readable:
            raise PermissionError("/sys/fs/cgroup")


@pytest.mark.promise("loop-responsive")
def test_a_slow_reading_keeps_scrapes_waiting_and_nothing_else(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Memory(monkeypatch)
    gone = server.connect()
    gone.sendall(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")
    wait_until(lambda: memory.readings == 1)
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(scrape, server) for _ in range(4)]
        gone.close()
        assert server.is_well()
        assert server.client.get("/livez").status_code == 200
        assert not any(each.done() for each in waiting)
        memory.may_end.set()
        assert {each.result().status_code for each in waiting} == {200}
    assert memory.readings == 1


def test_a_reading_that_fails_fails_only_for_those_who_waited(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Memory(monkeypatch)
    memory.is_readable = False
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(scrape, server) for _ in range(4)]
        wait_until(lambda: memory.readings == 1)
        memory.may_end.set()
        assert {each.result().status_code for each in waiting} <= {500, 200}
    memory.is_readable = True
    assert scrape(server).status_code == 200


@pytest.mark.promise("loop-responsive")
def test_copying_the_counts_of_many_owners_takes_no_longer() -> None:
    def copying_s(owners: int) -> float:
        metrics = ServerMetrics()
        metrics.observe_model(MODEL)
        metrics.watch_keys()
        for number in range(owners):
            metrics.work_done(f"owner-{number}", MODEL, texts=1, tokens=1)
        return min(processor_time_s(metrics.copy) for _ in range(5))

    few_s, many_s = copying_s(1), copying_s(20_000)
    print(f"1 owner {few_s * 1e3:.2f} ms, 20,000 owners {many_s * 1e3:.2f} ms")
    assert many_s < 3 * few_s


def processor_time_s(function: object) -> float:
    assert callable(function)
    began = time.thread_time()
    function()
    return time.thread_time() - began


class Place:
    """Two processes, as their routes see them, and a metric that has the time on their clock."""

    def __init__(self, clock: SetClock) -> None:
        self._sockets = open_page_sockets(2)
        self.siblings = [Siblings(number, self._sockets) for number in range(2)]
        self.routes = [self._route(siblings, clock) for siblings in self.siblings]

    async def open(self) -> None:
        for siblings in self.siblings:
            await siblings.open()

    def close(self) -> None:
        for siblings, listening in zip(self.siblings, self._sockets, strict=True):
            assert siblings._server is not None  # a process has no reason to close it before its end
            siblings._server.close()
            listening.close()

    def _route(self, siblings: Siblings, clock: SetClock) -> Route:
        service = build_service(QUIET, [(describe_model(locate_model()), None)], page_clock=clock)
        object.__setattr__(service, "siblings", siblings)
        Gauge("copied_at", "The time.", registry=service.metrics.registry).set_function(clock)
        (route,) = metrics_routes(service, [])
        return route

    async def scrape(self, number: int) -> list[float]:
        """The times at which the processes copied their counts, from the page that one of them gives."""
        client = httpx.AsyncClient(
            transport=httpx.ASGITransport(self.routes[number].app), base_url="http://place"
        )
        async with client:
            page = (await client.get("/metrics")).text
        return [float(line.split()[1]) for line in page.splitlines() if line.startswith("copied_at{")]


@pytest.fixture
async def place(clock: SetClock) -> AsyncIterator[Place]:
    place = Place(clock)
    await place.open()
    yield place
    place.close()


@pytest.mark.linux
@pytest.mark.promise("counts-agree")
async def test_the_page_of_several_processes_is_a_second_old_at_most(place: Place, clock: SetClock) -> None:
    copies = set[float]()
    for step in range(60):
        clock.now += 0.1 * PAGE_AGE_S
        found = await place.scrape(step % 2 if step < 40 else 0)
        assert len(found) == 2
        assert min(found) > clock.now - PAGE_AGE_S - 1e-9
        copies |= set(found)
    assert len(copies) <= 15  # 6 s, two a second


@pytest.mark.linux
async def test_a_process_that_cannot_write_its_page_is_missing_from_it(place: Place, clock: SetClock) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)

    async def fail() -> bytes:
        raise PermissionError("/sys/fs/cgroup")

    place.siblings[1].offer(fail)
    assert await place.scrape(0) == [clock.now]
