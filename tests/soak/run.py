"""Runs the server under steady load for minutes and judges whether anything grows.

`python -m soak.run --minutes 30` measures the capacity, sends 70% of it as an open loop with 5% aborted and
2% invalid requests, and samples the process every second. Memory must not grow in the second half by more
than its noise. File descriptors, threads, tasks and open texts must be as many after the load as before.
Exits with 1 if anything grows, and with 2 if the machine was too busy for the load. `--leak` plants a leak,
which must be found.
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
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chaos.ledger import ExactRows, Ledger
from chaos.storm import Manner, Storm, StormConfig, plan_requests
from soak.trend import Trend, draw_sparks, find_trend
from support.source_tree import ROOT

BACKLOG = 2_048
SHARE = 0.7
CLIENTS = 8
CAPACITY_S = 10.0
SEED = 20_265
MANNERS = {Manner.PLAIN: 0.93, Manner.ABORTING: 0.05, Manner.INVALID: 0.02}
EXPECTED = {"200", "400", "left"}
SERIES = ("rss_mb", "fds", "threads", "tasks", "open_texts")
# How many more there may be at rest after the load than before: sockets of probes, threads of pools.
REST_LIMITS = {"fds": 4, "threads": 2, "tasks": 2, "open_texts": 0}
REST_S = 4.0
# As many texts are open only if requests wait for each other.
BUSY_TEXTS = 100


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
    def leaks(self) -> list[str]:
        """The series that grow."""
        left = [name for name, limit in REST_LIMITS.items() if self.after[name] - self.before[name] > limit]
        return ["rss_mb", *left] if self.memory.is_leak else left

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


async def soak(seconds: float, leak: str = "none") -> Report:
    """Run a server under load for `seconds` and return the samples."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
    port = int(listener.getsockname()[1])
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "tests/soak/soaked_server.py"),
        str(listener.fileno()),
        leak,
        stdout=asyncio.subprocess.PIPE,
        pass_fds=[listener.fileno()],
    )
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"ready\n"
        resting, samples = Samples(), Samples()
        sampling = asyncio.create_task(_sample(process, process.stdout, resting))
        capacity = await _measure_capacity(port)
        await asyncio.sleep(REST_S)
        before = resting.latest
        sampling.cancel()
        sampling = asyncio.create_task(_sample(process, process.stdout, samples))
        with _EndCounter() as ends:
            await Storm(port, _config(seconds, SHARE * capacity), ends, _Uncompared()).send()
        sampling.cancel()
        sampling = asyncio.create_task(_sample(process, process.stdout, resting))
        await asyncio.sleep(REST_S)
        sampling.cancel()
        return Report(SHARE * capacity, samples, ends.ends, before, resting.latest)
    finally:
        listener.close()
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await process.wait()


def _config(seconds: float, requests_per_s: float) -> StormConfig:
    config = StormConfig(10**9, SEED, requests_per_s, burstiness=1.0, max_texts=8, frequencies=MANNERS)
    for planned in plan_requests(config):
        if planned.at_s >= seconds:
            return StormConfig(
                planned.first, SEED, requests_per_s, burstiness=1.0, max_texts=8, frequencies=MANNERS
            )
    raise AssertionError("the plan has no end")


async def _measure_capacity(port: int) -> float:
    """Return the requests per second of clients that wait for each response."""
    config = StormConfig(10**6, SEED + 1, 1e6, burstiness=1.0, max_texts=8, frequencies=MANNERS)
    plan = plan_requests(config)
    clock = asyncio.get_running_loop().time
    began = clock()
    with _EndCounter() as ends:
        storm = Storm(port, config, ends, _Uncompared())

        async def client() -> None:
            while clock() - began < CAPACITY_S:
                await storm.send_one(next(plan), clock())

        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        storm.close()
        return ends.ends.total() / (clock() - began)


async def _sample(
    process: asyncio.subprocess.Process, output: asyncio.StreamReader, samples: Samples
) -> None:
    began = time.monotonic()
    folder = Path(f"/proc/{process.pid}")
    while line := await output.readline():
        status = dict(
            entry.split(":", 1) for entry in (folder / "status").read_text().splitlines() if ":" in entry
        )
        own = json.loads(line)
        samples.add(
            time.monotonic() - began,
            {
                "rss_mb": int(status["VmRSS"].split()[0]) / 1024,
                "threads": int(status["Threads"]),
                "fds": len(os.listdir(folder / "fd")),
                **own,
            },
        )


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


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the arguments, run, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--leak", choices=["none", "memory", "fds", "tasks"], default="none")
    parser.add_argument("--plot", type=Path, default=Path(tempfile.gettempdir()) / "vecmill-soak.png")
    options = parser.parse_args(arguments)
    report = asyncio.run(soak(60 * options.minutes, options.leak))
    print("\n".join(report.lines()))
    draw(report.samples, options.plot)
    print(f"plot: {options.plot}")
    if bool(report.leaks) == (options.leak != "none"):
        sys.exit(2 if report.was_busy else 0)
    sys.exit(2 if report.was_busy else 1)


if __name__ == "__main__":
    main()
