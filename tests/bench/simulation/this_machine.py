"""Real runs of the loads of `scale` on more and more cores of this machine, beside simulated ones.

The simulation is fitted to a real run on one core, as in `validation`, and gets the same requests. The real
runs have neither HTTP nor tokenisation, so the simulated ones have neither here. Loads whose texts are longer
than the model allows are left out.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from bench.simulation.fitting import fit_machine
from bench.simulation.machine import Machine
from bench.simulation.process import SimulatedProcess
from bench.simulation.scale import LOADS, MEMORY_BYTES_S, widths_of
from bench.simulation.validation import FITTED, WARM_UP_S, Case, Comparison, run_really

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


def write_row(point: Comparison) -> list[str]:
    """Return the cells of a line."""
    real, cores = point.real, point.case.cores
    # Of the calls that ended in the run. They had their cores whether or not all their threads had work.
    texts = sum(len(call.lengths) for call in real.calls)
    spent_s = sum((call.ended_at - call.began_at) * call.width for call in real.calls)
    cells = [point.case.load, str(cores), f"{texts / real.seconds:,.0f}", f"{point.throughput:.2f}"]
    for percent in (50, 99):
        cells += [f"{real.percentile_s(percent) * 1e3:,.1f}", f"{point.latency(percent):.2f}"]
    return [*cells, f"{spent_s / real.seconds / cores:.0%}", f"{real.loop_s / real.seconds:.0%}"]


def compare_cores(
    cores: Sequence[int], seconds: float, seed: int, told: Callable[[str], None]
) -> tuple[Machine, list[Comparison]]:
    """Fit to one core, and compare every load on every number of cores with a real run."""
    told(f"fitting to {FITTED} on one core")
    machine = fit_machine(run_really(Case(FITTED, 1), seconds, seed, 0.0))
    points = []
    for load in REAL_LOADS:
        for count in cores:
            told(f"{load}, {count} cores")
            case = Case(load, count)
            real = run_really(case, seconds, seed, 0.0)
            here = replace(machine, cores=count, memory_bytes_s=MEMORY_BYTES_S)
            process = SimulatedProcess(here, LOADS[load](count), seed=seed, widths=widths_of(count))
            points.append(Comparison(case, real, process.run(seconds, warm_up_s=WARM_UP_S)))
    return machine, points
