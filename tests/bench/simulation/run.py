"""The real policy on simulated cores, beside real runs, and on machines with many cores.

make bench-simulation ARGS="--parts validation"

Writes `build/bench/simulation.md`. docs/contributing/many-cores.md tells what was found and what is assumed.
"""

import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tqdm import tqdm

from bench.program import make_parser, start
from bench.report import Figure, markdown_table, save_page
from bench.simulation.fitting import fit_machine
from bench.simulation.machine import Machine
from bench.simulation.scale import CORES, HEADINGS, LOADS, RECORDED, simulate_scale
from bench.simulation.this_machine import HEADINGS as REAL_HEADINGS
from bench.simulation.this_machine import REAL_LOADS, compare_cores, write_row
from bench.simulation.validation import CASES, FITTED, Case, Comparison, compare, run_really
from vecmill.hardware.cores import available_cores

SEED = 20_261_126
PARTS = ("validation", "this-machine", "scale")
THROUGHPUT_WITHIN, P99_WITHIN = 0.10, 0.20
SCALE_S = 4.0


@contextmanager
def progress(runs: int) -> Iterator[Callable[[str], None]]:
    """Show a bar of so many runs; give the function that says which one begins."""
    with tqdm(total=runs, unit="run") as bar:

        def tell(what: str) -> None:
            bar.set_postfix_str(what)
            bar.update()

        yield tell


def validate(rounds: int, seconds: float) -> tuple[str, list[Figure]]:
    """Compare with real runs, and return the page and the figures."""
    found: list[list[Comparison]] = []
    with progress(rounds * (1 + len(CASES))) as tell:
        found += [compare(seconds, SEED + 10 * number, tell) for number in range(rounds)]
    rows: list[list[str]] = []
    figures: list[Figure] = []
    for case, *comparisons in zip(CASES, *found, strict=True):
        throughputs = tuple(each.throughput for each in comparisons)
        p99s = tuple(each.latency(99) for each in comparisons)
        real = [each.real for each in comparisons]
        name = f"{case.load}, {case.share:g} arriving, {case.cores} cores"
        rows.append(
            [
                f"{case.load}, {case.share:g} cores arriving" if case.share else case.load,
                str(case.cores),
                f"{statistics.median(each.per_second for each in real):.1f}",
                f"{statistics.median(throughputs):.3f} ({min(throughputs):.2f}-{max(throughputs):.2f})",
                f"{statistics.median(each.percentile_s(99) for each in real) * 1e3:.1f}",
                f"{statistics.median(p99s):.3f} ({min(p99s):.2f}-{max(p99s):.2f})",
            ]
        )
        figures += [
            _error(f"{name}: error of the throughput", throughputs, THROUGHPUT_WITHIN),
            _error(f"{name}: error of p99", p99s, P99_WITHIN),
        ]
    headings = ["load", "cores", "real, requests/s", "simulated / real"]
    headings += ["real p99, ms", "simulated / real p99"]
    return f"Fitted to {FITTED} on one core.\n\n{markdown_table(headings, rows)}\n", figures


def _error(name: str, ratios: tuple[float, ...], bound: float) -> Figure:
    return Figure(name, "", (abs(statistics.median(ratios) - 1),), bound)


def doublings(cores: int) -> list[int]:
    """Return 2, 4, 8 and so on, up to `cores`."""
    return [2**power for power in range(1, cores.bit_length())]


def show_this_machine(cores: Sequence[int], seconds: float) -> str:
    """Return the table of real runs on the cores of this machine, beside simulated ones."""
    with progress(1 + len(REAL_LOADS) * len(cores)) as tell:
        machine, points = compare_cores(cores, seconds, SEED, tell)
    return f"{machine_table(machine)}\n{markdown_table(REAL_HEADINGS, [*map(write_row, points)])}\n"


def show_scale(machine: Machine) -> str:
    """Return the table of all loads on all numbers of cores."""
    rows = []
    points = [(load, cores) for load in LOADS for cores in CORES]
    for load, cores in tqdm(points, unit="run"):
        rows.append(simulate_scale(machine, cores, load, SCALE_S, SEED).row())
    return f"{machine_table(machine)}\n{markdown_table(HEADINGS, rows)}\n"


def machine_table(machine: Machine) -> str:
    """Return the fitted times."""
    call, python = machine.call, machine.python
    rows = [
        ["a call", f"{call.fixed_s * 1e3:.3f} ms"],
        ["a token", f"{call.per_token_s * 1e6:.1f} us"],
        ["a pair of tokens", f"{call.per_pair_s * 1e9:.1f} ns"],
        ["event loop, a request without HTTP", f"{python.request_s * 1e3:.3f} ms"],
        ["lane, between two calls", f"{python.turn_s * 1e3:.3f} ms"],
    ]
    return markdown_table(["fitted", "time on one core"], rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, rounds=3)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=["validation", "scale"])
    parser.add_argument("--seconds", type=float, default=15.0, help="How long a real run lasts.")
    parser.add_argument("--cores", type=int, nargs="+", help="Of this machine. Default: 2, 4, 8 ...")
    parser.add_argument("--fit", action="store_true", help="Simulate many cores like those of this machine.")
    page = "# The policy on simulated cores\n\n"
    figures: list[Figure] = []
    with start(parser, arguments, seed=SEED) as run:
        options = run.options
        if "validation" in options.parts:
            text, figures = validate(options.rounds, options.seconds)
            page += f"## Beside real runs\n\n{text}\n"
        if "this-machine" in options.parts:
            cores = options.cores or doublings(available_cores())
            page += f"## The cores of this machine\n\n{show_this_machine(cores, options.seconds)}\n"
        if "scale" in options.parts:
            machine = RECORDED
            if options.fit:
                machine = fit_machine(run_really(Case(FITTED, 1), options.seconds, SEED, 0.0))
            page += f"## Many cores\n\n{show_scale(machine)}\n"
    print(page)
    print(f"written to {save_page('simulation', page)}")
    return run.finish("simulation", "simulated and real runs", figures) if figures else 0


if __name__ == "__main__":
    sys.exit(main())
