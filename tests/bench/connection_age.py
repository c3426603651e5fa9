"""What the longest age of connections costs: the processor time of the server for each request.

PYTHONPATH=tests .venv/test/bin/python -m bench.connection_age [--rounds N] [--seconds S]

A server without a longest age, one with the default, and one whose connections end after about a hundred
requests get the same load in turn, from the generator of `vecmill bench`. The engine is the fake one.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType

from bench.report import warn_if_busy
from support.server import LiveServer, live_server
from vecmill_server.bench.generator import Orders, run_generator
from vecmill_server.bench.load_results import BenchLoad, LoadResult
from vecmill_server.bench.request_sets import ServerApi
from vecmill_server.bench.target import MeasuredServer

CLIENTS = 8
BODY = b'{"input": "a short text, as a search for something has it"}\n'
# A client sends about 250 requests a second.
AGES_S = MappingProxyType({"no limit": 0.0, "default": 300.0, "about 100 requests": 0.4})


def processor_time_s(server: LiveServer) -> float:
    """Return the processor time that the server has used."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(server: LiveServer, bodies: Path, seconds: float) -> tuple[float, LoadResult]:
    """Return the processor time of a request in microseconds, and the figures of the load."""
    target = MeasuredServer.of(server.url, ServerApi.EMBEDDINGS, None)
    load = BenchLoad("one short text", 1, clients=CLIENTS)
    orders = Orders(
        target,
        bodies_file=str(bodies),
        clients=CLIENTS,
        rate_hz=None,
        duration_s=seconds,
        warm_s=0.0,
        timeout_s=20.0,
        seed=1,
    )
    before = processor_time_s(server)
    found = run_generator(orders, load)
    return 1e6 * (processor_time_s(server) - before) / sum(found.statuses.values()), found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="How many loads each server gets.")
    parser.add_argument("--seconds", type=float, default=5.0, help="How long each load lasts.")
    options = parser.parse_args(arguments)
    warn_if_busy()
    costs_us: dict[str, list[float]] = {name: [] for name in AGES_S}
    rates: dict[str, list[float]] = {name: [] for name in AGES_S}
    failed = 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vecmill-age-")))
        bodies = folder / "bodies"
        bodies.write_bytes(BODY)
        servers = {}
        for number, (name, age_s) in enumerate(AGES_S.items()):
            (folder / str(number)).mkdir()
            quiet = ("--engine", "fake", "--no-access-log", "--max-connection-age-s", str(age_s))
            servers[name] = stack.enter_context(live_server(folder / str(number), arguments=quiet))
        for number in range(options.rounds + 1):
            for name, server in servers.items():
                cost_us, found = measure(server, bodies, options.seconds)
                failed += sum(count for status, count in found.statuses.items() if status != 200)
                if number:  # the first load warms up
                    costs_us[name].append(cost_us)
                    rates[name].append(found.statuses[200] / found.elapsed_s)
    print("processor time of the server for a request in microseconds, and requests/s: median (range)")
    for name in AGES_S:
        cells = [
            f"{statistics.median(each):.4g} ({min(each):.4g} to {max(each):.4g})"
            for each in (costs_us[name], rates[name])
        ]
        print(f"  {name}: {cells[0]}; {cells[1]}")
    print(f"{failed} requests without status 200")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
