"""Load from a process of its own that sends requests whether or not earlier ones were answered.

Requests leave at the times that a Poisson process of the given rate sets, so a slow server is not spared.
The process keeps connections open and speaks just enough HTTP/1.1 to read a status and a length, so that it
takes some 50 microseconds of a core for each request.
"""

import argparse
import asyncio
import contextlib
import json
import random
import resource
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import uvloop

# What is still open when the last request has been sent gets so long.
PATIENCE_S = 90.0


@dataclass(slots=True)
class Arrivals:
    """What happened to the requests: for each its status, when it was to leave, and when it was answered.

    Times are seconds since the first request. A connection that broke has status 0.
    `delays_s` are the delays of this process: how much later than due each request left.
    """

    statuses: list[int] = field(default_factory=list)
    sent_s: list[float] = field(default_factory=list)
    taken_s: list[float] = field(default_factory=list)
    delays_s: list[float] = field(default_factory=list)
    processor_s: float = 0.0
    connections: int = 0

    def latencies_s(self, status: int) -> list[float]:
        """The latencies of all answers with `status`."""
        return [taken for found, taken in zip(self.statuses, self.taken_s, strict=True) if found == status]

    def count_within(self, status: int, seconds: float) -> int:
        """The number of answers with `status` that came in the first `seconds`."""
        answers = zip(self.statuses, self.sent_s, self.taken_s, strict=True)
        return sum(found == status and sent + taken <= seconds for found, sent, taken in answers)


class _Connection(asyncio.Protocol):
    """One connection, with one request at a time."""

    def __init__(self, load: "_Load") -> None:
        self._load = load
        self._buffer = b""
        self.due_at = 0.0
        self.is_busy = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's has another base class

    def send(self, request: bytes, due_at: float) -> None:
        assert self.transport is not None
        self.due_at, self.is_busy = due_at, True
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        lower = head.lower()
        at = lower.index(b"content-length:") + 15
        end = lower.find(b"\r\n", at)
        if len(rest) < int(lower[at : end if end > 0 else None]):
            return
        self._buffer, self.is_busy = b"", False
        self._load.take(self, int(head[9:12]), b"connection: close" not in lower)

    def connection_lost(self, error: Exception | None) -> None:
        self._load.lose(self)


class _Load:
    """All connections and requests of a run."""

    def __init__(self, host: str, port: int, head: bytes, bodies: Sequence[bytes]) -> None:
        self._address = host, port
        self._requests = [head % len(body) + body for body in bodies]
        self._free: deque[_Connection] = deque()
        self._open = 0
        self._began = 0.0
        self._quiet: asyncio.Event | None = None  # set when the last answer has come
        self.found = Arrivals()

    async def run(self, rate: float, duration_s: float, seed: int) -> Arrivals:
        draw = random.Random(seed)
        self._began = due_at = time.perf_counter()
        number = 0
        waiting: set[asyncio.Task[None]] = set()
        while due_at < self._began + duration_s:
            await asyncio.sleep(max(0.0, due_at - time.perf_counter()))
            self.found.delays_s.append(time.perf_counter() - due_at)
            request = self._requests[number % len(self._requests)]
            number += 1
            if self._free:
                self._send(self._free.popleft(), request, due_at)
            else:
                task = asyncio.ensure_future(self._connect_and_send(request, due_at))
                waiting.add(task)
                task.add_done_callback(waiting.discard)
            due_at += draw.expovariate(rate)
        if waiting:
            await asyncio.wait(waiting)
        self._quiet = asyncio.Event()
        with contextlib.suppress(TimeoutError):
            if self._open:
                await asyncio.wait_for(self._quiet.wait(), PATIENCE_S)
        for _ in range(self._open):
            self._count(-1, due_at)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self.found.processor_s = usage.ru_utime + usage.ru_stime
        return self.found

    async def _connect_and_send(self, request: bytes, due_at: float) -> None:
        loop = asyncio.get_running_loop()
        self.found.connections += 1
        try:
            _, connection = await loop.create_connection(lambda: _Connection(self), *self._address)
        except OSError:
            self._count(0, due_at)
            return
        self._send(connection, request, due_at)

    def _send(self, connection: _Connection, request: bytes, due_at: float) -> None:
        self._open += 1
        connection.send(request, due_at)

    def take(self, connection: _Connection, status: int, keeps_alive: bool) -> None:
        self._open -= 1
        self._count(status, connection.due_at)
        if keeps_alive:
            self._free.append(connection)

    def lose(self, connection: _Connection) -> None:
        if connection.is_busy:
            connection.is_busy = False
            self._open -= 1
            self._count(0, connection.due_at)
        elif connection in self._free:
            self._free.remove(connection)

    def _count(self, status: int, due_at: float) -> None:
        self.found.statuses.append(status)
        self.found.sent_s.append(due_at - self._began)
        self.found.taken_s.append(time.perf_counter() - due_at)
        if self._quiet is not None and not self._open:
            self._quiet.set()


def run_open_loop(
    url: str, bodies: Path, *, rate: float, duration_s: float, seed: int, key: str = ""
) -> Arrivals:
    """Send the bodies, one a line of the file, at `rate` requests a second; return what happened."""
    result = bodies.with_suffix(".arrivals.json")
    command = [sys.executable, "-m", "perf.open_loop", url, str(bodies), str(result), str(rate)]
    command += [str(duration_s), str(seed), key]
    subprocess.run(command, check=True, timeout=duration_s + PATIENCE_S + 60, cwd=Path(__file__).parents[1])
    return Arrivals(**json.loads(result.read_text("utf-8")))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name in ("url", "bodies", "result", "rate", "duration_s", "seed", "key"):
        parser.add_argument(name)
    options = parser.parse_args()
    address = urlsplit(options.url)
    bodies = Path(options.bodies).read_bytes().splitlines()
    lines = [f"POST {address.path} HTTP/1.1", f"host: {address.netloc}", "content-type: application/json"]
    if options.key:
        lines.append(f"authorization: Bearer {options.key}")
    head = "\r\n".join([*lines, "content-length: %d", "", ""]).encode()
    load = _Load(address.hostname or "", address.port or 80, head, bodies)
    found = uvloop.run(load.run(float(options.rate), float(options.duration_s), int(options.seed)))
    Path(options.result).write_text(json.dumps(asdict(found)), "utf-8")


if __name__ == "__main__":
    main()
