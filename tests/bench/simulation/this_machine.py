"""Real runs of the loads of `scale` on more and more cores of this machine, beside simulated ones.

The simulation is fitted to a real run on one core, as in `validation`, and gets the same requests. The real
runs have neither HTTP nor tokenisation, so the simulated ones have neither here. Loads whose texts are longer
than the model allows are left out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bench.simulation.answers import Answers
from bench.simulation.fitting import fit_machine
from bench.simulation.machine import Machine
from bench.simulation.measured import MeasuredRun
from bench.simulation.process import SimulatedProcess
from bench.simulation.scale import LOADS, MEMORY_BYTES_S, widths_of
from bench.simulation.validation import FITTED, WARM_UP_S, Case, run_really

REAL_LOADS = tuple(name for name in LOADS if "4,000" not in name)
HEADINGS = (
    "load",
    "cores",
    "real, texts/s",
    "simulated / real requests",
    "real median, ms",
    "simulated / real",
    "real p99, ms",
    "simulated / real",
    "cores computing",
    "event loop busy",
)


@dataclass(frozen=True, slots=True)
class RealPoint:
    """A load on so many cores of this machine, and what was simulated for it."""

    load: str
    cores: int
    real: MeasuredRun
    simulated: Answers

    @property
    def texts_per_s(self) -> float:
        """The texts of the calls that ended in the run, each second."""
        return sum(len(call.lengths) for call in self.real.calls) / self.real.seconds

    @property
    def computing(self) -> float:
        """The share of the cores that calls had, whether or not all their threads had work."""
        spent_s = sum((call.ended_at - call.began_at) * call.width for call in self.real.calls)
        return spent_s / self.real.seconds / self.cores

    def row(self) -> list[str]:
        """Return the cells of a line."""
        real, simulated = self.real, self.simulated
        cells = [self.load, str(self.cores), f"{self.texts_per_s:,.0f}"]
        cells.append(f"{simulated.per_second / real.per_second:.2f}")
        for percent in (50, 99):
            found_s = real.percentile_s(percent)
            cells += [f"{found_s * 1e3:,.1f}", f"{simulated.percentile_s(percent) / found_s:.2f}"]
        return [*cells, f"{self.computing:.0%}", f"{real.loop_s / real.seconds:.0%}"]


def compare_cores(
    cores: Sequence[int], seconds: float, seed: int, told: Callable[[str], None]
) -> tuple[Machine, list[RealPoint]]:
    """Fit to one core, and compare every load on every number of cores with a real run."""
    told(f"fitting to {FITTED} on one core")
    machine = fit_machine(run_really(Case(FITTED, 1), seconds, seed, 0.0))
    points = []
    for load in REAL_LOADS:
        for count in cores:
            told(f"{load}, {count} cores")
            real = run_really(Case(load, count), seconds, seed, 0.0)
            here = replace(machine, cores=count, memory_bytes_s=MEMORY_BYTES_S)
            process = SimulatedProcess(here, LOADS[load](count), seed=seed, widths=widths_of(count))
            points.append(RealPoint(load, count, real, process.run(seconds, warm_up_s=WARM_UP_S)))
    return machine, points
