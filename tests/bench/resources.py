"""Cores and memory by model and load, for the requests and limits of containers.

make bench-resources

The models other than the embedded one have a published shape and random weights, which compute as fast as
real ones. The server runs on the first N processors. wrk runs on any processor, so the figures are too low if
the server has all of them.
"""

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.generator import run_load, write_bodies
from bench.report import Figure, finish, warn_if_busy
from bench.sizes import run_script
from bench.start import SERVE, memory_mib, processor_s
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

    def cells(self) -> tuple[str, ...]:
        return (
            self.model,
            str(self.cores),
            str(self.clients),
            f"{self.texts_per_s:.0f}",
            f"{self.p50_ms:.0f}",
            f"{self.p99_ms:.0f}",
            f"{self.cores_used:.1f}",
            f"{self.memory_mb:.0f}",
            f"{self.first_start_peak_mb:.0f}",
        )


HEADINGS = (
    "model",
    "cores",
    "clients",
    "texts/s",
    "p50, ms",
    "p99, ms",
    "cores used",
    "memory, MB",
    "first start, peak RSS, MB",
)


def peak_memory_mb(process_id: int) -> float:
    """Return the peak of the resident memory of a process, in MB."""
    text = Path(f"/proc/{process_id}/status").read_text("utf-8")
    found = re.search(r"^VmHWM:\s+(\d+) kB", text, flags=re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024 / 1e6


def container_memory_mb(process_id: int) -> float:
    """Return the proportional memory of a process, in MB.

    Two sessions map the same weights. A container counts such pages once, as the proportional memory
    does. The resident memory counts them twice.
    """
    return memory_mib(process_id)[1] * 2**20 / 1e6


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


def measure_model(name: str, cores: int, options: argparse.Namespace) -> list[Measured]:
    """Start the server twice, with an empty and a filled cache, and load the second one."""
    found = []
    with tempfile.TemporaryDirectory(prefix="vecmill-resources-") as scratch:
        folder = Path(scratch)
        served = make_model(name, folder)
        arguments = [served, "--cores", str(cores), "--engine", options.engine]
        arguments += ["--precision", options.precision]
        # The throughput is measured, so no request is refused for its wait.
        arguments += ["--target-wait-s", "60", "--timeout-s", "120"]
        # The requests name the embedded model.
        arguments += [] if served == MODEL else ["--alias", MODEL]
        command = ["taskset", "--cpu-list", f"0-{cores - 1}", str(options.serve)]
        with live_server(folder, arguments=arguments, command=command, timeout_s=600) as server:
            peak_mb = peak_memory_mb(server.process.pid)
        bodies = write_bodies(folder / "bodies.jsonl", mixed_texts(SEED, TEXTS))
        with live_server(folder, arguments=arguments, command=command, timeout_s=600) as server:
            for clients in options.clients:
                rate, p50_ms, p99_ms, used = measure_load(server, bodies, clients, options.seconds)
                memory_mb = container_memory_mb(server.process.pid)
                found.append(Measured(name, cores, clients, rate, p50_ms, p99_ms, used, peak_mb, memory_mb))
    return found


def print_markdown(rows: Sequence[Measured]) -> None:
    """Print the table of docs/sizing.md."""
    for cells in (HEADINGS, ("---",) * len(HEADINGS), *(row.cells() for row in rows)):
        print(f"| {' | '.join(cells)} |")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", nargs="+", choices=SHAPES, default=SHAPES)
    parser.add_argument("--cores", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--clients", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--seconds", type=int, default=15, help="How long each load lasts.")
    parser.add_argument("--engine", default="onnx")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--serve", type=Path, default=SERVE, help="The vecmill that serves.")
    options = parser.parse_args(arguments)
    warn_if_busy()
    rows = [
        row
        for name in options.model
        for cores in options.cores
        for row in measure_model(name, cores, options)
    ]
    print(f"\n{options.engine} in {options.precision}, mixed texts, one text a request\n")
    print_markdown(rows)
    figures = [
        figure
        for row in rows
        for label in [f"{row.model}, {row.cores} cores, {row.clients} clients"]
        for figure in (
            Figure(label, "texts/s", (row.texts_per_s,)),
            Figure(f"{label}, memory", "MB", (row.memory_mb,)),
        )
    ]
    settings = {"engine": options.engine, "precision": options.precision, "seconds": options.seconds}
    return finish("resources", "cores and memory", figures, settings | {"seed": SEED})


if __name__ == "__main__":
    sys.exit(main())
