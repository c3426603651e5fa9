"""The simulation against real runs that it has not seen: other loads, and two cores instead of one.

Each round fits the simulation to a real run on one core (`fitting`), and compares it with real runs of other
loads on one and on two cores. The rounds are short and follow each other, because the speed of a shared
machine changes within minutes.
"""

import itertools
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bench.simulation.fitting import fit_machine
from bench.simulation.loads import MIXED, PASSAGES, QUERIES, Load, Stream, arriving, closed
from bench.simulation.machine import Machine
from bench.simulation.measured import MeasuredRun, read_run
from bench.simulation.process import Found, SimulatedProcess

WARM_UP_S = 3.0
# Of the requests whose mean time tells how many arrive in a second.
RATE_SEED, RATE_REQUESTS = 1, 1_000

# By name: the load of so many requests a second in its streams that arrive.
LOADS: dict[str, Callable[[float], Load]] = {
    # Calls of all sizes, so that none of another load lies outside of what is fitted.
    "mixed-beside-passages": lambda _rate: Load(
        "mixed beside passages",
        (Stream("mixed", MIXED, clients=6), Stream("passages", PASSAGES, clients=1)),
    ),
    "mixed-8": lambda _rate: closed("mixed", MIXED, 8),
    "mixed-arriving": lambda rate: arriving("mixed", MIXED, rate),
    "queries-32": lambda _rate: closed("queries", QUERIES, 32),
    "queries-beside-bulk": lambda rate: Load(
        "queries beside bulk",
        (Stream("queries", QUERIES, rate=rate), Stream("passages", PASSAGES, clients=2)),
    ),
}
FITTED = "mixed-beside-passages"


@dataclass(frozen=True, slots=True)
class Case:
    """A load on so many cores. What arrives would keep `share` cores busy, if each text had a call alone."""

    load: str
    cores: int
    share: float = 0.0


CASES = (
    Case("queries-32", 1),
    Case("mixed-arriving", 1, 0.3),
    Case("mixed-arriving", 1, 0.6),
    Case("mixed-8", 2),
    Case("queries-32", 2),
    Case("mixed-arriving", 2, 0.6),
    Case("mixed-arriving", 2, 1.2),
    Case("queries-beside-bulk", 2, 0.1),
    Case("queries-beside-bulk", 2, 0.4),
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A real run, and the simulated one."""

    case: Case
    real: MeasuredRun
    simulated: Found

    @property
    def throughput(self) -> float:
        """The simulated requests a second over the real ones."""
        return self.simulated.per_second / self.real.per_second

    def latency(self, percent: int) -> float:
        """The simulated percentile of the latencies over the real one."""
        return self.simulated.percentile_s(percent) / self.real.percentile_s(percent)


def run_really(case: Case, seconds: float, seed: int, rate: float) -> MeasuredRun:
    """Run a case in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="vecmill-simulation-") as folder:
        file = Path(folder) / "run.json"
        command = [sys.executable, "-m", "bench.simulation.measured", str(file), "--load", case.load]
        command += ["--cores", str(case.cores), "--seconds", str(seconds), "--seed", str(seed)]
        command += ["--rate", str(rate)]
        subprocess.run(command, check=True, env=dict(os.environ))
        return read_run(file)


def simulate(machine: Machine, case: Case, seconds: float, seed: int, rate: float) -> Found:
    """Simulate a case."""
    process = SimulatedProcess(replace(machine, cores=case.cores), LOADS[case.load](rate), seed=seed)
    return process.run(seconds, warm_up_s=WARM_UP_S)


def find_rate(case: Case, machine: Machine) -> float:
    """Return the requests a second of the stream of a case that arrives."""
    arriving = [stream for stream in LOADS[case.load](1.0).streams if not stream.clients]
    if not arriving:
        return 0.0
    drawn = itertools.islice(arriving[0].requests(RATE_SEED), RATE_REQUESTS)
    return case.share / statistics.fmean(machine.call.seconds(lengths, 1) for lengths in drawn)


def compare(seconds: float, seed: int, told: Callable[[str], None]) -> list[Comparison]:
    """Fit once, and compare all cases with real runs."""
    told(f"fitting to {FITTED} on one core")
    fitted = run_really(Case(FITTED, 1), seconds, seed, 0.0)
    machine = fit_machine(fitted)
    found = []
    for case in CASES:
        rate = find_rate(case, machine)
        told(f"{case.load} on {case.cores} cores")
        real = run_really(case, seconds, seed + 1, rate)
        found.append(Comparison(case, real, simulate(machine, case, seconds, seed + 1, rate)))
    return found
