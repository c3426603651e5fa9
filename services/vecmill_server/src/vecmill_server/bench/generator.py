"""The process that sends requests over many connections and takes the times.

`run_generator` starts the process and reads its result. The process reads its `Orders` as JSON from standard
input, and the request bodies from a file, one a line.

The process keeps its connections open and reads status, length and `connection` of each response, so a
request takes some 50 microseconds of a core. Responses are discarded as they arrive.
"""

import asyncio
import errno
import json
import math
import random
import resource
import signal
import ssl
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from vecmill.errors import ServerFailed
from vecmill_server.bench.load_connection import LoadConnection
from vecmill_server.bench.load_results import (
    BROKEN,
    OK,
    UNANSWERED,
    BenchLoad,
    LoadResult,
    summarise_latencies,
)
from vecmill_server.bench.target import MeasuredServer

# Time for the start of the process, on top of the load's own times.
_START_S = 60.0
# uvloop rounds times to milliseconds, so a timer may be so much late.
_TIMER_S = 0.002
# Errors of a connection that are the limits of the generator's machine, and not of the server.
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM})


@dataclass(frozen=True, slots=True)
class Orders:
    """The load on a server, as the process is told.

    The first `warm_s` seconds are not counted. A request that is not answered within `timeout_s` counts as
    unanswered, and its connection is closed. A closed loop with `requests` sends this number of requests, and
    ends with the last response or after `duration_s`.
    """

    target: MeasuredServer
    bodies_file: str
    clients: int | None
    rate_hz: float | None
    duration_s: float
    warm_s: float
    timeout_s: float
    seed: int
    requests: int | None = None


@dataclass(slots=True)
class Sightings:
    """The counted requests, as in `LoadResult`. `delays_s` are the delays of an open loop, in seconds."""

    statuses: Counter[int] = field(default_factory=Counter)
    latencies_s: list[float] = field(default_factory=list)
    error_latencies_s: list[float] = field(default_factory=list)
    delays_s: list[float] = field(default_factory=list)
    answered: int = 0
    open_at_end: int = 0
    oldest_open_s: float = 0.0
    shortage: str | None = None


def run_generator(orders: Orders, load: BenchLoad) -> LoadResult:
    """Run a load in a process of its own. Raises `ServerFailed` if the process fails."""
    limit_s = orders.warm_s + orders.duration_s + orders.timeout_s + _START_S
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=json.dumps(asdict(orders)),
            stdout=subprocess.PIPE,
            check=True,
            text=True,
            timeout=limit_s,
        )
    except subprocess.SubprocessError as error:
        raise ServerFailed(
            f"The load {load.name} on {orders.target.host}:{orders.target.port} failed: {error}"
        ) from error
    found = json.loads(done.stdout)
    statuses = {int(status): count for status, count in found.pop("statuses").items()}
    return LoadResult(load=load, statuses=statuses, **found)


class LoadRun:
    """All connections and requests of a load."""

    def __init__(self, orders: Orders, bodies: Sequence[bytes]) -> None:
        head = orders.target.head.encode()
        self._orders = orders
        self._requests = [head + b"content-length: %d\r\n\r\n" % len(body) + body for body in bodies]
        self._sent = 0
        self._idle: deque[LoadConnection] = deque()
        self._busy: set[LoadConnection] = set()
        self._open: set[LoadConnection] = set()
        self._connecting: dict[asyncio.Task[None], float] = {}  # when the request of each was due
        # When the requests were due that were answered after the end and before it was noted.
        self._late: list[float] = []
        self._counts_from = self._ends_at = 0.0
        self._left = math.inf if orders.requests is None else orders.requests
        self._elapsed_s = orders.duration_s
        self._all_counted = asyncio.Event()
        self._quiet = asyncio.Event()
        self._found = Sightings()
        self._context = ssl.create_default_context() if orders.target.is_tls else None

    async def run(self) -> Mapping[str, Any]:
        """Run the load, and return its figures."""
        orders = self._orders
        began = time.perf_counter()
        self._counts_from = began + orders.warm_s
        self._ends_at = self._counts_from + orders.duration_s
        watch = asyncio.create_task(self._close_late())
        if orders.clients is not None:
            for _ in range(orders.clients):
                if self._may_send():
                    self._connect_and_send(time.perf_counter())
            await self._wait_until(self._counts_from)
            used_s = processor_time_s()
            await self._wait_for_end()
        else:
            assert orders.rate_hz is not None
            await self._send_at_rate(began, self._counts_from, orders.rate_hz)
            used_s = processor_time_s()
            await self._send_at_rate(self._counts_from, self._ends_at, orders.rate_hz)
        used_s = processor_time_s() - used_s
        self._note_open()
        await self._drain()
        watch.cancel()
        while self._open:
            for connection in self._open:
                connection.close()
            await asyncio.sleep(0)
        return self._figures(used_s)

    def _figures(self, used_s: float) -> Mapping[str, Any]:
        found = self._found
        delays = sorted(found.delays_s)
        return {
            "elapsed_s": self._elapsed_s,
            "statuses": dict(found.statuses),
            "processor_share": used_s / self._elapsed_s,
            "percentiles_s": summarise_latencies(found.latencies_s),
            "latencies_s": found.latencies_s,
            "error_percentiles_s": summarise_latencies(found.error_latencies_s),
            "answered": found.answered,
            "open_at_end": found.open_at_end,
            "oldest_open_s": found.oldest_open_s,
            "delay_p50_s": delays[len(delays) // 2] if delays else 0.0,
            "delay_p99_s": delays[int(0.99 * len(delays))] if delays else 0.0,
            "shortage": found.shortage,
        }

    async def _send_at_rate(self, begin: float, end: float, rate_hz: float) -> None:
        """Send at the times of a Poisson process between two times, which are drawn first."""
        chance = random.Random(self._orders.seed)
        due, times = begin + chance.expovariate(rate_hz), []
        while due < end:
            times.append(due)
            due += chance.expovariate(rate_hz)
        for due in times:
            await self._wait_until(due)
            if due >= self._counts_from:
                self._found.delays_s.append(time.perf_counter() - due)
            self._send(due)
        await self._wait_until(end)

    def _send(self, due: float) -> None:
        while self._idle:
            connection = self._idle.popleft()
            if connection.is_open:
                self._send_on(connection, due)
                return
        self._connect_and_send(due)

    def _send_on(self, connection: LoadConnection, due: float) -> None:
        request = self._requests[self._sent % len(self._requests)]
        self._sent += 1
        self._busy.add(connection)
        connection.send(request, due)

    def _connect_and_send(self, due: float) -> None:
        task = asyncio.ensure_future(self._connect(due))
        self._connecting[task] = due
        task.add_done_callback(self._connecting.pop)

    async def _connect(self, due: float) -> None:
        loop, orders = asyncio.get_running_loop(), self._orders
        try:
            async with asyncio.timeout(orders.timeout_s):
                _, connection = await loop.create_connection(
                    lambda: LoadConnection(self._take, self._lose),
                    orders.target.host,
                    orders.target.port,
                    ssl=self._context,
                )
        except OSError as error:
            if error.errno in _SHORTAGES:
                self._found.shortage = error.strerror
                self._all_counted.set()
                return
            self._count(BROKEN, due)
            if orders.clients is not None and self._may_send():
                await asyncio.sleep(0.1)
                self._connect_and_send(time.perf_counter())
            return
        self._open.add(connection)
        self._send_on(connection, due)

    def _take(self, connection: LoadConnection, status: int) -> None:
        self._busy.discard(connection)
        self._count(status, connection.due_at)
        now = time.perf_counter()
        if now >= self._ends_at:
            self._late.append(connection.due_at)
        if self._orders.clients is None:
            self._idle.append(connection)
        elif self._may_send():
            if connection.is_open:
                self._send_on(connection, now)
            else:
                self._connect_and_send(now)
        self._note_end()

    def _lose(self, connection: LoadConnection) -> None:
        self._open.discard(connection)
        if connection in self._busy:
            self._busy.discard(connection)
            if connection.is_busy:
                self._count(BROKEN, connection.due_at)
            if self._orders.clients is not None and self._may_send():
                self._connect_and_send(time.perf_counter())
        self._note_end()

    def _count(self, status: int, due: float) -> None:
        """Count a request of the counted time: an open loop's by when it was due, else by its end.

        A request of a closed loop that is open when the counted time ends is counted if it fails.
        """
        now = time.perf_counter()
        is_in_time = self._counts_from <= now < self._ends_at
        if self._orders.clients is None:
            is_counted = self._counts_from <= due < self._ends_at
        else:
            is_counted = is_in_time or (now >= self._ends_at and status != OK)
        self._found.answered += is_in_time and status == OK
        if not is_counted:
            return
        self._found.statuses[status] += 1
        if status == OK:
            self._found.latencies_s.append(now - due)
        elif status > 0:
            self._found.error_latencies_s.append(now - due)
        if self._found.statuses.total() == self._orders.requests:
            self._all_counted.set()

    def _may_send(self) -> bool:
        """Whether a client of a closed loop sends another request now. Counts this request as sent."""
        if self._left < 1 or time.perf_counter() >= self._ends_at:
            return False
        self._left -= 1
        return True

    async def _wait_for_end(self) -> None:
        """Wait for the end of a closed loop: its time is over, or all its requests are counted."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all_counted.wait(), self._ends_at - time.perf_counter())
            self._elapsed_s = time.perf_counter() - self._counts_from

    def _note_open(self) -> None:
        """Note which requests are open. Those that a closed loop sends from now on do not count."""
        # uvloop rounds times to milliseconds, so this may be early.
        self._ends_at = min(self._ends_at, time.perf_counter())
        busy = (connection.due_at for connection in self._busy)
        due = [*busy, *self._connecting.values(), *self._late]
        self._found.open_at_end = len(due)
        self._found.oldest_open_s = self._ends_at - min(due, default=self._ends_at)

    def _note_end(self) -> None:
        if not self._busy:
            self._quiet.set()

    async def _drain(self) -> None:
        """Wait for the open requests, at most for the time limit, and count the others as unanswered.

        So a server has nothing left to compute when the next load begins.
        """
        if self._connecting:
            await asyncio.wait(tuple(self._connecting))
        if self._busy:
            self._quiet.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._quiet.wait(), self._orders.timeout_s)
            for connection in self._busy:
                self._give_up(connection)

    async def _close_late(self) -> None:
        """Count requests beyond the time limit as unanswered, and close their connections."""
        while True:
            await asyncio.sleep(0.5)
            limit = time.perf_counter() - self._orders.timeout_s
            for connection in [each for each in self._busy if each.due_at < limit]:
                self._give_up(connection)

    def _give_up(self, connection: LoadConnection) -> None:
        connection.is_busy = False
        self._count(UNANSWERED, connection.due_at)
        connection.close()

    async def _wait_until(self, at: float) -> None:
        await asyncio.sleep(max(0.0, at - time.perf_counter() - _TIMER_S))
        # The sleep of a thread ends on time, and leaves the cores to the server.
        if (left_s := at - time.perf_counter()) > 0:
            await asyncio.to_thread(time.sleep, left_s)


def processor_time_s() -> float:
    """Return the processor time of this process, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def raise_file_limit() -> None:
    """Let this process, and those that it starts, open as many connections as the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> None:
    """Read the orders from standard input, run the load, and write its figures to standard output."""
    # Ctrl-C interrupts the command, which ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise_file_limit()
    found = json.loads(sys.stdin.read())
    orders = Orders(MeasuredServer(**found.pop("target")), **found)
    bodies = Path(orders.bodies_file).read_bytes().splitlines()

    async def run() -> Mapping[str, Any]:
        return await LoadRun(orders, bodies).run()

    json.dump(uvloop.run(run()), sys.stdout)


if __name__ == "__main__":
    main()
