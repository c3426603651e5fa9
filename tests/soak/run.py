"""Runs the server under steady load for minutes and judges whether anything grows.

`python -m soak.run --minutes 30` measures the capacity, sends 70% of it as an open loop with 5% aborted and
2% invalid requests, and samples the process every second. Memory must not grow in every part of the second
half: `soak.trend` has the rule. File descriptors, threads, tasks and open texts must be as many after the
load as before. Prints a line every minute. Exits with 1 if anything grows or the server ends, and with 2 if
the machine was too busy for the load. `--leak` plants a leak, which must be found.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.ledger import ExactRows, Ledger
from chaos.storm import Manner, Storm, StormConfig, plan_requests
from soak.trend import Trend, draw_sparks, find_trend
from support.source_tree import ROOT

BACKLOG = 2_048
SHARE = 0.7
CLIENTS = 8
SEED = 20_265
MANNERS = {Manner.PLAIN: 0.93, Manner.ABORTING: 0.05, Manner.INVALID: 0.02}
EXPECTED = {"200", "400", "left"}
SERIES = ("rss_mb", "fds", "threads", "tasks", "open_texts")
# How many more there may be at rest after the load than before: sockets of probes, threads of pools.
REST_LIMITS = {"fds": 4, "threads": 2, "tasks": 2, "open_texts": 0}
# As many texts are open only if requests wait for each other.
BUSY_TEXTS = 100
PROGRESS_S = 60.0
# A planted leak of memory during the whole load, and the series in which each planted leak shows.
LEAKED_MB = 80
LEAKS = {"memory": "rss_mb", "fds": "fds", "tasks": "tasks"}


class ServerEnded(Exception):
    """The server ended by itself."""


@dataclass(frozen=True, slots=True)
class SoakConfig:
    """A run: how long the load lasts, how long its capacity is measured, and the rest before and after it.

    `leak` is the planted leak, of `LEAKS`.
    """

    seconds: float
    leak: str = "none"
    capacity_s: float = 10.0
    rest_s: float = 4.0


@dataclass(slots=True)
class Samples:
    """The series of one run: seconds since the start of the load, and the values of each series."""

    times_s: list[float] = field(default_factory=list)
    series: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in SERIES})

    def add(self, at_s: float, values: dict[str, float]) -> None:
        """Add one sample of every series."""
        self.times_s.append(at_s)
        for name, found in self.series.items():
            found.append(values[name])

    @property
    def latest(self) -> dict[str, float]:
        """The newest sample."""
        return {name: values[-1] for name, values in self.series.items()}


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of a run. `before` and `after` are samples at rest, before and after the load."""

    requests_per_s: float
    samples: Samples
    ends: Counter[str]
    before: dict[str, float]
    after: dict[str, float]

    @property
    def memory(self) -> Trend:
        """The trend of the resident memory in MB."""
        return find_trend("rss_mb", self.samples.times_s, self.samples.series["rss_mb"])

    @property
    def left_behind(self) -> list[str]:
        """The series of which there is more after the load than before."""
        return [name for name, limit in REST_LIMITS.items() if self.after[name] - self.before[name] > limit]

    @property
    def leaks(self) -> list[str]:
        """The series that grow."""
        return ["rss_mb", *self.left_behind] if self.memory.is_leak else self.left_behind

    @property
    def was_busy(self) -> bool:
        """Whether the machine could not sustain the load, so that memory says nothing."""
        open_texts = sorted(self.samples.series["open_texts"])
        return not self.ends.keys() <= EXPECTED or open_texts[int(0.95 * len(open_texts))] > BUSY_TEXTS

    def lines(self) -> list[str]:
        """The report for people."""
        rest = [f"{name} {self.before[name]:g} -> {self.after[name]:g}" for name in SERIES]
        verdict = f"grows: {', '.join(self.leaks)}" if self.leaks else "steady"
        return [
            f"{self.requests_per_s:.1f} requests/s for {self.samples.times_s[-1]:.0f} s; "
            f"requests by end: {dict(self.ends)}",
            str(self.memory),
            f"at rest, before -> after: {', '.join(rest)}",
            *(f"{name:<10} {draw_sparks(values)}" for name, values in self.samples.series.items()),
            f"verdict: {verdict}" + (", on a machine that was too busy" if self.was_busy else ""),
        ]


class _Uncompared(ExactRows):
    """Embeddings that nobody compares: the ledger does that."""

    def __init__(self) -> None:
        super().__init__(iter(()))

    def keep(self, row: str) -> str:
        return ""


class _EndCounter(Ledger):
    """A ledger that counts the ends instead of writing them down."""

    def __init__(self) -> None:
        super().__init__(Path(os.devnull))
        self.ends: Counter[str] = Counter()

    def ended(self, exchange: object) -> None:
        left, status = getattr(exchange, "left"), getattr(exchange, "status")  # noqa: B009
        self.ends["left" if left else str(status)] += 1


async def soak(config: SoakConfig) -> Report:
    """Run a server under load and return the samples. Raises `ServerEnded` if the server ends by itself."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
    port = int(listener.getsockname()[1])
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "tests/soak/soaked_server.py"),
        str(listener.fileno()),
        config.leak,
        str(LEAKED_MB * 1e6 / config.seconds),
        stdout=asyncio.subprocess.PIPE,
        pass_fds=[listener.fileno()],
    )
    assert process.stdout is not None
    try:
        if await process.stdout.readline() != b"ready\n":
            raise ServerEnded("the server did not start")
        return await _while_serving(process, _load(process, process.stdout, port, config))
    finally:
        listener.close()
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await process.wait()


async def _while_serving(process: asyncio.subprocess.Process, work: Coroutine[Any, Any, Report]) -> Report:
    """Return the result of `work`. Raises `ServerEnded` if the process ends sooner."""
    working, ending = asyncio.create_task(work), asyncio.create_task(process.wait())
    try:
        await asyncio.wait([working, ending], return_when=asyncio.FIRST_COMPLETED)
        if ending.done():
            raise ServerEnded(f"the server ended with status {ending.result()}")
        return await working
    finally:
        for task in (working, ending):
            task.cancel()
        await asyncio.gather(working, ending, return_exceptions=True)


async def _load(
    process: asyncio.subprocess.Process, output: asyncio.StreamReader, port: int, config: SoakConfig
) -> Report:
    """Measure the capacity, rest, send the load, and rest again."""
    before, under_load, after = Samples(), Samples(), Samples()
    async with _sampling(process, output, before):
        capacity = await _measure_capacity(port, config.capacity_s)
        await asyncio.sleep(config.rest_s)
    print(f"{SHARE * capacity:.1f} requests/s for {config.seconds:.0f} s", flush=True)
    async with _sampling(process, output, under_load):
        with _EndCounter() as ends:
            await Storm(port, _config(config.seconds, SHARE * capacity), ends, _Uncompared()).send()
    async with _sampling(process, output, after):
        await asyncio.sleep(config.rest_s)
    return Report(SHARE * capacity, under_load, ends.ends, before.latest, after.latest)


@asynccontextmanager
async def _sampling(
    process: asyncio.subprocess.Process, output: asyncio.StreamReader, samples: Samples
) -> AsyncIterator[None]:
    """Sample the process until the block ends. Raises `AssertionError` if there was no sample."""
    sampling = asyncio.create_task(_sample(process, output, samples))
    try:
        yield
    finally:
        sampling.cancel()
        await asyncio.wait([sampling])
    if not sampling.cancelled():
        await sampling  # raises what ended it
    assert samples.times_s, "the server printed no counts"


def _config(seconds: float, requests_per_s: float) -> StormConfig:
    config = StormConfig(10**9, SEED, requests_per_s, burstiness=1.0, max_texts=8, frequencies=MANNERS)
    for planned in plan_requests(config):
        if planned.at_s >= seconds:
            return StormConfig(
                planned.first, SEED, requests_per_s, burstiness=1.0, max_texts=8, frequencies=MANNERS
            )
    raise AssertionError("the plan has no end")


async def _measure_capacity(port: int, seconds: float) -> float:
    """Return the requests per second of clients that wait for each response."""
    config = StormConfig(10**6, SEED + 1, 1e6, burstiness=1.0, max_texts=8, frequencies=MANNERS)
    plan = plan_requests(config)
    clock = asyncio.get_running_loop().time
    began = clock()
    with _EndCounter() as ends:
        storm = Storm(port, config, ends, _Uncompared())

        async def client() -> None:
            while clock() - began < seconds:
                await storm.send_one(next(plan), clock())

        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        storm.close()
        return ends.ends.total() / (clock() - began)


async def _sample(
    process: asyncio.subprocess.Process, output: asyncio.StreamReader, samples: Samples
) -> None:
    began = told = time.monotonic()
    folder = Path(f"/proc/{process.pid}")
    while line := await output.readline():
        status = dict(
            entry.split(":", 1) for entry in (folder / "status").read_text().splitlines() if ":" in entry
        )
        own = json.loads(line)
        now = time.monotonic()
        samples.add(
            now - began,
            {
                "rss_mb": int(status["VmRSS"].split()[0]) / 1024,
                "threads": int(status["Threads"]),
                "fds": len(os.listdir(folder / "fd")),
                **own,
            },
        )
        if now - told >= PROGRESS_S:
            told = now
            values = (f"{name} {value:.0f}" for name, value in samples.latest.items())
            print(f"after {now - began:.0f} s: {', '.join(values)}", flush=True)


def draw(samples: Samples, path: Path) -> None:
    """Write the series as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(samples.series), 1, sharex=True, figsize=(10, 12))
    for axis, (name, values) in zip(axes, samples.series.items(), strict=True):
        axis.plot(samples.times_s, values, linewidth=0.8)
        axis.set_ylabel(name)
        axis.axvline(samples.times_s[len(values) // 2], linewidth=0.5, color="grey")
    axes[-1].set_xlabel("seconds")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)


def judge(report: Report, leak: str) -> int:
    """Return the exit status of a run with this planted leak."""
    if report.was_busy:
        return 2
    is_right = LEAKS[leak] in report.leaks if leak in LEAKS else not report.leaks
    return 0 if is_right else 1


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the arguments, run, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--leak", choices=["none", *LEAKS], default="none")
    parser.add_argument("--plot", type=Path, default=Path(tempfile.gettempdir()) / "vecmill-soak.png")
    options = parser.parse_args(arguments)
    try:
        report = asyncio.run(soak(SoakConfig(60 * options.minutes, options.leak)))
    except ServerEnded as error:
        sys.exit(f"verdict: {error}")
    print("\n".join(report.lines()))
    draw(report.samples, options.plot)
    print(f"plot: {options.plot}")
    sys.exit(judge(report, options.leak))


if __name__ == "__main__":
    main()
