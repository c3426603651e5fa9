"""Cores and memory by model and load, for the requests and limits of containers.

make bench-resources

The models other than the embedded one have a published shape and random weights, which compute as fast as
real ones. The server runs on the first N processors. wrk runs on any processor, so the figures are too low if
the server has all of them.
"""

import itertools
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.generator import run_load, write_bodies
from bench.process_use import processor_s, proportional_mb, status_mb
from bench.program import SERVE, Run, make_parser, start
from bench.report import Figure, markdown_table
from bench.sizes import run_script
from support.server import MODEL, LiveServer, live_server
from support.texts import mixed_texts

SEED = 20_260_110
TEXTS = 400
SHAPES = (MODEL, "bge-small", "bge-base")


@dataclass(frozen=True, slots=True)
class Measured:
    """One model on a number of cores under one load. Memory in MB."""

    model: str
    cores: int
    clients: int
    texts_per_s: float
    p50_ms: float
    p99_ms: float
    cores_used: float
    first_start_peak_mb: float
    memory_mb: float

    def cells(self) -> list[str]:
        rounded = (self.texts_per_s, self.p50_ms, self.p99_ms)
        memory = (self.memory_mb, self.first_start_peak_mb)
        head = [self.model, str(self.cores), str(self.clients), *(f"{value:.0f}" for value in rounded)]
        return [*head, f"{self.cores_used:.1f}", *(f"{value:.0f}" for value in memory)]


HEADINGS = (
    *("model", "cores", "clients", "texts/s", "p50, ms", "p99, ms"),
    *("cores used", "memory, MB", "first start, peak RSS, MB"),
)


def make_model(name: str, folder: Path) -> str:
    """Return the model to serve: the embedded one, or a directory with random weights."""
    if name == MODEL:
        return MODEL
    run_script(Path(sys.executable), "size_models.py", name, folder)
    return str(folder / "model")


def measure_load(server: LiveServer, bodies: Path, clients: int, seconds: int) -> tuple[float, ...]:
    """Return texts a second, the median and the 99th percentile in ms, and the cores used."""
    # The first requests of each length are slower on some engines.
    run_load(server.url, bodies, connections=clients, duration_s=max(1, seconds // 3))
    before, began = processor_s(server.process.pid), time.perf_counter()
    result = run_load(server.url, bodies, connections=clients, duration_s=seconds)
    used = (processor_s(server.process.pid) - before) / (time.perf_counter() - began)
    return result.rate, result.p50_s * 1e3, result.p99_s * 1e3, used


def measure_model(name: str, cores: int, run: Run) -> list[Measured]:
    """Start the server twice, with an empty and a filled cache, and load the second one."""
    options, found = run.options, []
    folder = run.folder / f"{name}-{cores}"
    folder.mkdir()
    served = make_model(name, folder)
    arguments = [served, "--cores", str(cores), "--engine", options.engine]
    arguments += ["--precision", options.precision]
    # The throughput is measured, so no request is refused for its wait.
    arguments += ["--target-wait-s", "60", "--timeout-s", "120"]
    # The requests name the embedded model.
    arguments += [] if served == MODEL else ["--alias", MODEL]
    command = ["taskset", "--cpu-list", f"0-{cores - 1}", str(options.serve)]
    with live_server(folder, arguments=arguments, command=command, timeout_s=600) as server:
        peak_mb = status_mb(server.process.pid, "VmHWM")
    bodies = write_bodies(folder / "bodies.jsonl", mixed_texts(SEED, TEXTS))
    with live_server(folder, arguments=arguments, command=command, timeout_s=600) as server:
        for clients in options.clients:
            rate, p50_ms, p99_ms, used = measure_load(server, bodies, clients, options.seconds)
            memory_mb = proportional_mb(server.process.pid)
            found.append(Measured(name, cores, clients, rate, p50_ms, p99_ms, used, peak_mb, memory_mb))
    shutil.rmtree(folder)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, seconds=15, serve=SERVE)
    parser.add_argument("--model", nargs="+", choices=SHAPES, default=SHAPES)
    parser.add_argument("--cores", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--clients", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--engine", default="onnx")
    parser.add_argument("--precision", default="fp32")
    with start(parser, arguments, seed=SEED, needs_wrk=True) as run:
        options = run.options
        each = itertools.product(options.model, options.cores)
        rows = [row for name, cores in each for row in measure_model(name, cores, run)]
    print(f"\n{options.engine} in {options.precision}, mixed texts, one text a request\n")
    print(markdown_table(HEADINGS, [row.cells() for row in rows]))  # the table of docs/choosing.md
    figures = []
    for row in rows:
        label = f"{row.model}, {row.cores} cores, {row.clients} clients"
        figures.append(Figure(label, "texts/s", (row.texts_per_s,)))
        figures.append(Figure(f"{label}, memory", "MB", (row.memory_mb,)))
    return run.finish("resources", "cores and memory", figures)


if __name__ == "__main__":
    sys.exit(main())
