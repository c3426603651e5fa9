"""The simulated process on machines with many cores: how far does the work of a load fill them?"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from bench.simulation.loads import PASSAGES, QUERIES, Load, Stream, closed, uniform
from bench.simulation.machine import CallCost, Machine, PythonCost
from bench.simulation.process import Found, SimulatedProcess
from vecmill.hardware.cores import WIDEST_CALL, usual_widths

CORES = (2, 8, 16, 64, 128)
# A node of a large server, and the link between two of them.
CORES_OF_NODE = 64
MEMORY_BYTES_S = 300e9
LINK_BYTES_S = 100e9
# The time of the event loop for a request over HTTP, which the runs without HTTP do not have.
HTTP_S = 0.5e-3

LONG_TEXT = uniform(1, 4_000, 4_200)
PAGES = uniform(1, 400, 512)

# As fitted to all-MiniLM-L6-v2 in fp32 on an Intel Xeon (model 207, AVX-512).
RECORDED = Machine(1, CallCost(2.6e-3, 166e-6, 0.1e-6), PythonCost(0.13e-3, 0.43e-3))

# By name: the load of a machine with so many cores.
LOADS: dict[str, Callable[[int], Load]] = {
    "one client, queries": lambda _cores: closed("queries", QUERIES, 1),
    "one client, texts of 400 to 512 tokens": lambda _cores: closed("pages", PAGES, 1),
    "clients for a quarter of the cores, 400 to 512 tokens": lambda cores: closed(
        "pages", PAGES, max(1, cores // 4)
    ),
    "16 clients a core, queries": lambda cores: closed("queries", QUERIES, 16 * cores),
    "2 clients a core, 16 passages": lambda cores: closed("passages", PASSAGES, 2 * cores),
    "one client, texts of 4,000 tokens": lambda _cores: closed("long", LONG_TEXT, 1),
    "4 clients, texts of 4,000 tokens": lambda _cores: closed("long", LONG_TEXT, 4),
    "queries beside passages": lambda cores: Load(
        "queries beside passages",
        (Stream("queries", QUERIES, clients=cores), Stream("passages", PASSAGES, clients=cores)),
    ),
}


@dataclass(frozen=True, slots=True)
class Point:
    """A load on so many cores, and what was found."""

    load: str
    cores: int
    found: Found

    @property
    def computing(self) -> float:
        """The share of the cores that compute."""
        return self.found.busy_core_s / self.found.seconds / self.cores

    @property
    def python(self) -> float:
        """The share of the time in which the interpreter's lock is held."""
        return self.found.python_s / self.found.seconds

    def row(self) -> list[str]:
        """Return the cells of a line."""
        found = self.found
        widths = ", ".join(f"{width}: {count}" for width, count in sorted(found.widths.items()))
        return [
            self.load,
            str(self.cores),
            f"{found.texts / found.seconds:,.0f}",
            f"{found.percentile_s(50) * 1e3:,.1f}",
            f"{found.percentile_s(99) * 1e3:,.1f}",
            f"{self.computing:.0%}",
            f"{self.python:.0%}",
            f"{found.mean_batch_tokens:,.0f}",
            widths,
        ]


HEADINGS = (
    "load",
    "cores",
    "texts/s",
    "median, ms",
    "p99, ms",
    "cores computing",
    "interpreter busy",
    "tokens a call",
    "calls by width",
)


def machine_of(fitted: Machine, cores: int) -> Machine:
    """Return a machine with so many cores like the fitted one."""
    python = replace(fitted.python, request_s=fitted.python.request_s + HTTP_S)
    return replace(
        fitted,
        cores=cores,
        python=python,
        nodes=-(-cores // CORES_OF_NODE),
        memory_bytes_s=MEMORY_BYTES_S,
        link_bytes_s=LINK_BYTES_S,
    )


def widths_of(cores: int) -> tuple[int, ...]:
    """Return the widths of calls that the engine opens on so many cores."""
    return usual_widths(cores, min(cores, WIDEST_CALL))


def simulate_scale(fitted: Machine, cores: int, load: str, seconds: float, seed: int) -> Point:
    """Simulate a load on so many cores."""
    process = SimulatedProcess(
        machine_of(fitted, cores), LOADS[load](cores), seed=seed, widths=widths_of(cores)
    )
    return Point(load, cores, process.run(seconds))
