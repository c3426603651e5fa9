"""Hostile clients against a real server: what they cost the others, and what the server keeps for them."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from chaos.comparison import compare
from support.livez_gap import livez_gap
from support.server import live_server

TESTS = Path(__file__).parents[1]
MIB = 1024 * 1024
HEAD = b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\n"
LIVEZ = b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
# The answer has 20 MB, more than the kernel keeps for a client.
LARGE = json.dumps({"input": ["a"] * 2_048, "encoding_format": "float"}).encode()
LARGE_ANSWER_BYTES = 20 * MIB
FIRST_REQUESTS = 5
PIPELINING, PIPELINED = 100, 50
# What a server has beyond its memory at the start when it is at rest, between bodies of 32 MiB.
SETTLED_MIB = 24
PIPELINED_REQUEST = b"GET /models HTTP/1.1\r\nhost: x\r\n\r\n"
# The server answers more than ten requests a second beside any others, on a machine however busy.
FEWEST_PAIRS = 12


@dataclass(frozen=True, slots=True)
class Scale:
    """How many clients there are, and how long the server waits for them: few, and short times."""

    silent: int = 100
    senders: int = 10
    sender_every_s: float = 0.03
    readers: int = 5
    reader_every_s: float = 0.05
    beside_s: float = 1.2  # how long others are measured
    judges_p99: bool = False  # the others send enough requests for a percentile
    bombs: int = 4
    bomb_bytes: int = 4 * MIB
    bodies: int = 10
    body_bytes: int = 8 * MIB
    never_reading: int = 10
    trailer_bytes: int = 4 * MIB
    pipelined_s: float = 1.0  # how long clients send pipelined requests
    header_timeout_s: float = 1.0
    body_timeout_s: float = 1.5  # slow senders stay while the others are measured
    write_timeout_s: float = 2.0  # a busy machine takes a second for each of the answers that wait together
    budget_bytes: int = 48 * MIB
    grace_s: float = 3.0  # how much later than promised a connection may close, on a busy machine


SMALL = Scale()
FULL = Scale(
    silent=1_000,
    senders=50,
    sender_every_s=1.0,
    readers=50,
    reader_every_s=1.0,
    beside_s=10.0,
    judges_p99=True,
    bombs=16,
    bomb_bytes=32 * MIB,
    bodies=60,
    body_bytes=32 * MIB,
    never_reading=200,
    trailer_bytes=117 * MIB,
    pipelined_s=30.0,
    header_timeout_s=10.0,
    body_timeout_s=30.0,
    write_timeout_s=60.0,
    budget_bytes=512 * MIB,
    grace_s=5.0,
)


@dataclass(slots=True)
class Finding:
    """What a scenario found: figures by name, and the promises that were broken."""

    figures: dict[str, float] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def promise(self, name: str, value: float, at_most: float) -> None:
        """Note a figure that must not be above `at_most`."""
        self.figures[name] = value
        if not value <= at_most:
            self.broken.append(f"{name} is {value:.3g}, promised at most {at_most:.3g}")


class PeakMemory:
    """The most memory of a process beyond what it had at first. The kernel keeps it: no peak is too short."""

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")
        self._first_mib = self._read_mib("VmRSS")
        self.forget()

    def forget(self) -> None:
        """Forget the peaks so far. Memory that was not given back still counts as grown."""
        (self._folder / "clear_refs").write_text("5")

    async def settle(self) -> None:
        """Wait until the process has given back what it took before, if it does so at all."""
        for _ in range(50):
            if self._read_mib("VmRSS") - self._first_mib < SETTLED_MIB:
                return
            await asyncio.sleep(0.1)

    def _read_mib(self, field: str) -> float:
        lines = (self._folder / "status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:"))

    def grown_mib(self) -> float:
        """By how many MiB the memory has grown at most."""
        return self._read_mib("VmHWM") - self._first_mib


@dataclass(frozen=True, slots=True)
class Attacked:
    """A server that hostile clients visit, one scenario after the other, and one that they leave alone."""

    port: int
    process: subprocess.Popen[bytes]
    memory: PeakMemory
    control_port: int


@dataclass(slots=True)
class Outcome:
    """How one connection ended: after how long, with which bytes first, with how many in all."""

    seconds: float
    first: bytes
    size: int

    @property
    def status(self) -> int:
        """The status of the answer, 0 if there was none."""
        return int(self.first[9:12]) if self.first.startswith(b"HTTP/1.1 ") else 0


async def send_and_wait(
    port: int,
    data: bytes,
    drip: tuple[bytes, float] | None = None,
    *,
    read_bytes: int = 65_536,
    read_every_s: float = 0.0,
    limit_s: float = 120.0,
    on_first: Callable[[], None] = lambda: None,
) -> Outcome:
    """Send `data`, then a piece of `drip` at intervals, and read until the server closes.

    `on_first` is called when the first bytes have come, or the connection has ended without any.
    """
    connection = socket.socket()
    connection.setblocking(False)
    if read_every_s:  # so that bytes wait at the server, not here
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=connection, limit=read_bytes)
    began = time.monotonic()
    first, size = b"", 0
    dripping = asyncio.ensure_future(_drip(writer, data, drip))
    with suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(limit_s):
            while chunk := await reader.read(read_bytes):
                if not first:
                    first = chunk
                    on_first()
                size += len(chunk)
                if read_every_s:
                    await asyncio.sleep(read_every_s)
    seconds = time.monotonic() - began
    if not first:
        on_first()
    dripping.cancel()
    writer.transport.abort()
    return Outcome(seconds, first, size)


async def _drip(writer: asyncio.StreamWriter, data: bytes, drip: tuple[bytes, float] | None) -> None:
    with suppress(ConnectionError):
        writer.write(data)
        await writer.drain()
        while drip is not None:
            await asyncio.sleep(drip[1])
            writer.write(drip[0])
            await writer.drain()


async def never_read(port: int, data: bytes, until: asyncio.Event) -> None:
    """Send `data`, and read nothing until the event."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(data)
    await until.wait()
    writer.transport.abort()
    del reader


async def buffered_bytes(port: int) -> float:
    """The bytes that the server holds for clients, from its metrics."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    text = await reader.read(-1)
    writer.close()
    line = next(line for line in text.splitlines() if line.startswith(b"vecmill_buffered_bytes "))
    return float(line.split()[1])


async def wait_for_bytes(port: int, condition: Callable[[float], bool], limit_s: float) -> float:
    """Return the seconds until the buffered bytes are as wanted, at most about `limit_s`."""
    began = time.monotonic()
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            while not condition(await buffered_bytes(port)):  # noqa: ASYNC110  # asks another process
                await asyncio.sleep(0.1)
    return time.monotonic() - began


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def ordinary_latencies(ports: tuple[int, int], seconds: float) -> tuple[list[float], list[float]]:
    """The seconds of ordinary requests to two servers in turn, on a connection to each."""
    connections = [await asyncio.open_connection("127.0.0.1", port) for port in ports]
    found: tuple[list[float], list[float]] = [], []
    for connection in connections * FIRST_REQUESTS:  # which take longer
        await _ordinary_latency(connection)
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        number += 1
        for place in ((0, 1), (1, 0))[number % 2]:
            found[place].append(await _ordinary_latency(connections[place]))
    for _, writer in connections:
        writer.close()
    return found


async def _ordinary_latency(connection: Streams) -> float:
    body = b'{"input": "an ordinary text", "encoding_format": "base64"}'
    reader, writer = connection
    began = time.perf_counter()
    writer.write(HEAD + b"content-length: %d\r\n\r\n%s" % (len(body), body))
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(int(length.split(b":")[1]))
    assert head.startswith(b"HTTP/1.1 200 "), head
    return time.perf_counter() - began


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def slow_clients(port: int, control_port: int, scale: Scale) -> Finding:
    """Silent sockets, senders of one byte a second and readers of one kilobyte a second, beside others."""
    finding = Finding()
    large = HEAD + b"connection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(LARGE), LARGE)
    slow_body = HEAD + b"content-length: 1000\r\n\r\n"
    answered = asyncio.Semaphore(0)
    readers = [
        send_and_wait(
            port, large, read_bytes=1_000, read_every_s=scale.reader_every_s, on_first=answered.release
        )
        for _ in range(scale.readers)
    ]
    readers_task = asyncio.gather(*readers)
    for _ in readers:  # computing their answers is ordinary work, not the cost of slow readers
        await answered.acquire()
    with livez_gap(port) as gap:
        others = asyncio.gather(
            asyncio.gather(*(send_and_wait(port, b"") for _ in range(scale.silent))),
            asyncio.gather(
                *(send_and_wait(port, slow_body, (b" ", scale.sender_every_s)) for _ in range(scale.senders))
            ),
        )
        beside, alone = await ordinary_latencies((port, control_port), scale.beside_s)
    silent_ends, sender_ends = await others
    reader_ends = await readers_task
    judge_rise(finding, beside, alone, scale)
    # Clients that send one request after the other meet a long stall only once.
    finding.promise("longest gap beyond control, s", gap.beyond_control_s, 0.25)
    for name, ends, promised in (
        ("silent", silent_ends, scale.header_timeout_s),
        ("senders", sender_ends, scale.body_timeout_s),
        ("readers", reader_ends, scale.write_timeout_s + 20.0),
    ):
        finding.promise(f"{name} closed, s", max(end.seconds for end in ends), promised + scale.grace_s)
    finding.promise("silent without 408", sum(end.status != 408 for end in silent_ends), 0)
    finding.promise("senders without 408", sum(end.status != 408 for end in sender_ends), 0)
    # Those whose answers do not fit into the budget get 503. The others are the slow readers.
    room = min(scale.readers, scale.budget_bytes // (2 * LARGE_ANSWER_BYTES))
    finding.promise("slow readers missing", room - sum(end.status == 200 for end in reader_ends), 0)
    return finding


def judge_rise(finding: Finding, beside: Sequence[float], alone: Sequence[float], scale: Scale) -> None:
    """Judge latencies beside slow clients: by p99, and by whether they are certainly longer."""
    found = compare(beside, alone)
    finding.promise("requests of others, lacking", FEWEST_PAIRS - len(beside), 0)
    finding.figures["p99 of others alone, ms"] = percentile(alone, 0.99) * 1e3
    finding.figures["median of others, rise"] = found.median.ratio
    finding.figures["slowest tenth of others, rise"] = found.slowest.ratio
    finding.figures["chance of that rise"] = found.slowest.chance
    p99_rise = percentile(beside, 0.99) / percentile(alone, 0.99)
    if scale.judges_p99:
        finding.promise("p99 of others, rise", p99_rise, 1.10)
    else:
        finding.figures["p99 of others, rise"] = p99_rise
    finding.promise("others certainly slower", found.is_slower, 0)


BOMBS = MappingProxyType(
    {
        "lists": (b'{"input":[', b"[],", b"[]]}"),
        "pairs": (b'{"input":[', b'{"a":1},', b"1]}"),
        "keys of one object": (b"{", b'"a":1,', b'"b":1}'),
        "a wide character": (b'{"input":["\xf0\x9f\x98\x80', b"abc", b'"]}'),
        "escapes": (b'{"input":["', b"\\u00e9", b'"]}'),
        "text": (b'{"input":["', b"words ", b'"]}'),
    }
)


def make_bomb(kind: str, size: int) -> bytes:
    """A body of about `size` bytes, which would be large in memory or take long to decode."""
    start, item, end = BOMBS[kind]
    return start + item * ((size - len(start) - len(end)) // len(item)) + end


async def structural_bombs(server: Attacked, scale: Scale) -> Finding:
    """Bodies that would grow in memory, one of each kind; then four of empty lists at once, and all."""
    finding, port = Finding(), server.port
    for kind, count in (*((kind, 1) for kind in BOMBS), *(("lists", count) for count in {4, scale.bombs})):
        body = make_bomb(kind, scale.bomb_bytes)
        request = HEAD + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        await server.memory.settle()
        server.memory.forget()
        with livez_gap(port) as gap:
            ends = await asyncio.gather(*(send_and_wait(port, request) for _ in range(count)))
        held = min(count * len(body), scale.budget_bytes)
        name = f"{kind} x {count}"
        finding.promise(f"{name}: longest gap beyond control, s", gap.beyond_control_s, 0.25)
        finding.promise(f"{name}: memory beyond bodies, MiB", server.memory.grown_mib() - held / MIB, 64.0)
        unexpected = [end.status for end in ends if end.status not in (200, 400, 413, 503)]
        finding.promise(f"{name}: other answers than 200, 400, 413 and 503", len(unexpected), 0)
        finding.figures[f"{name}: refused for lack of room"] = sum(end.status == 503 for end in ends)
        # A server that reads no body has no trouble with it.
        finding.promise(f"{name}: none was read", all(end.status == 503 for end in ends), 0)
    return finding


async def endless_trailers(server: Attacked, scale: Scale) -> Finding:
    """A chunked body whose trailers do not end."""
    finding, port = Finding(), server.port
    data = HEAD + b"transfer-encoding: chunked\r\n\r\n12\r\n" + b'{"input": "hello"}' + b"\r\n0\r\n"
    server.memory.forget()
    end = await send_and_wait(port, data + b"x-trailer: value\r\n" * (scale.trailer_bytes // 18))
    finding.promise("memory, MiB", server.memory.grown_mib(), 64.0)
    finding.promise("closed, s", end.seconds, scale.grace_s)
    finding.promise("not 431", end.status != 431, 0)
    return finding


async def unfinished_bodies(server: Attacked, scale: Scale) -> Finding:
    """Large bodies that lack their last byte."""
    finding, port = Finding(), server.port
    head = HEAD + b"content-length: %d\r\n\r\n" % scale.body_bytes
    server.memory.forget()
    body = b" " * (scale.body_bytes - 1)
    ends = await asyncio.gather(*(send_and_wait(port, head + body) for _ in range(scale.bodies)))
    finding.promise("memory, MiB", server.memory.grown_mib(), scale.budget_bytes / MIB + 64.0)
    finding.promise("closed, s", max(end.seconds for end in ends), scale.body_timeout_s + 5 + scale.grace_s)
    finding.promise("neither 408 nor 503", sum(end.status not in (408, 503) for end in ends), 0)
    finding.figures["refused for lack of room"] = sum(end.status == 503 for end in ends)
    room = min(scale.bodies, scale.budget_bytes // (2 * scale.body_bytes))
    finding.promise("bodies missing in memory", room - sum(end.status == 408 for end in ends), 0)
    return finding


async def clients_that_never_read(server: Attacked, scale: Scale) -> Finding:
    """Requests for large answers whose clients read nothing; then the same, and a stop."""
    finding, port = Finding(), server.port
    request = HEAD + b"content-length: %d\r\n\r\n%s" % (len(LARGE), LARGE)
    server.memory.forget()
    ended = asyncio.Event()
    clients = [asyncio.ensure_future(never_read(port, request, ended)) for _ in range(scale.never_reading)]
    filled_s = await wait_for_bytes(port, lambda held: held > scale.budget_bytes / 2, 30.0)
    finding.promise("half of the budget filled, s", filled_s, 30.0)
    finding.figures["buffered, MiB"] = await buffered_bytes(port) / MIB
    limit_s = scale.write_timeout_s + 30.0 + scale.grace_s  # 30 s to compute the answers
    finding.promise("given up, s", await wait_for_bytes(port, lambda held: held < MIB, limit_s + 5), limit_s)
    finding.promise("memory, MiB", server.memory.grown_mib(), scale.budget_bytes / MIB + 128.0)
    finding.promise("not well afterwards", (await send_and_wait(port, LIVEZ)).status != 200, 0)
    clients += [asyncio.ensure_future(never_read(port, request, ended)) for _ in range(5)]
    filled_s = await wait_for_bytes(port, lambda held: held > 4 * MIB, 30.0)
    finding.promise("filled before the stop, s", filled_s, 30.0)
    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    status = await asyncio.to_thread(server.process.wait, 60)
    finding.promise("stop, s", time.monotonic() - began, 10.0 + scale.grace_s)
    finding.figures["status of the stop"] = status
    ended.set()
    await asyncio.gather(*clients, return_exceptions=True)
    return finding


async def pipelined_requests(server: Attacked, scale: Scale) -> Finding:
    """A hundred connections, each with fifty requests of a cheap route on their way all the time."""
    finding, port = Finding(), server.port
    with livez_gap(port) as gap:
        until = time.monotonic() + scale.pipelined_s
        counts = await asyncio.gather(*(pipeline(port, until) for _ in range(PIPELINING)))
    finding.promise("longest gap beyond control, s", gap.beyond_control_s, 0.25)
    finding.promise("connections without an answer", sum(not count for count in counts), 0)
    finding.figures["requests/s"] = sum(counts) / scale.pipelined_s
    finding.figures["fewest and most answers of a connection, ratio"] = min(counts) / max(counts)
    return finding


async def pipeline(port: int, until: float) -> int:
    """Keep `PIPELINED` requests on their way until this time, and return the number of answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(PIPELINED_REQUEST * PIPELINED)
    count = 0
    while time.monotonic() < until and (data := await reader.read(65_536)):
        answers = data.count(b"HTTP/1.1 200 ")
        count += answers
        writer.write(PIPELINED_REQUEST * answers)
    writer.transport.abort()
    return count


Scenario = Callable[[Attacked, Scale], Awaitable[Finding]]
SCENARIOS: MappingProxyType[str, Scenario] = MappingProxyType(
    {
        "bombs": structural_bombs,
        "trailers": endless_trailers,
        "bodies": unfinished_bodies,
        "slow": lambda server, scale: slow_clients(server.port, server.control_port, scale),
        "pipelined": pipelined_requests,
        "unread": clients_that_never_read,  # the last, because it stops the server
    }
)


@contextmanager
def server_for(scale: Scale, plant: str | None = None) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A server with the limits of `scale`: its port, its process. `plant` is one of `chaos.plants.PLANTS`."""
    options = {
        "header-timeout-s": scale.header_timeout_s,
        "body-timeout-s": scale.body_timeout_s,
        "write-timeout-s": scale.write_timeout_s,
        "max-buffered-bytes": scale.budget_bytes,
    }
    # Long texts are refused: the memory that their tokenisation takes is not measured here.
    arguments = ["--engine", "fake", "--no-access-log", "--max-text-characters", "100000"]
    arguments += [part for name, value in options.items() for part in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "vecmill"]
    if plant is not None:
        paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        command = ["env", f"PYTHONPATH={paths}", sys.executable, "-m", "chaos.planted_server", plant]
    with (
        tempfile.TemporaryDirectory() as folder,
        live_server(Path(folder), arguments=arguments, command=command) as server,
    ):
        yield int(server.url.rpartition(":")[2]), server.process


@contextmanager
def attacked_server(scale: Scale, control_port: int) -> Iterator[Attacked]:
    """A server with the limits of `scale`, beside the one at `control_port`."""
    with server_for(scale) as (port, process):
        yield Attacked(port, process, PeakMemory(process.pid), control_port)
