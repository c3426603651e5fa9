"""What the longest age of connections costs: the processor time of the server for each request.

PYTHONPATH=tests .venv/test/bin/python -m bench.connection_age [--rounds N] [--seconds S]

A server without a longest age, one with the default, and one whose connections end after about a hundred
requests get the same load in turn, from the generator of `vecmill bench`. The engine is the fake one.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType

from bench.generator import make_orders
from bench.process_use import processor_s
from bench.program import SERVE_WITH_ENGINES, make_parser, start, take_turns
from bench.report import Figure
from support.server import LiveServer
from vecmill_server.bench.generator import run_generator
from vecmill_server.bench.load_results import OK, BenchLoad, LoadResult
from vecmill_server.bench.request_sets import ServerApi
from vecmill_server.bench.target import MeasuredServer

BODY = b'{"input": "a short text, as a search for something has it"}\n'
LOAD = BenchLoad("one short text", 1, clients=8)
# A client sends about 250 requests a second.
AGES_S = MappingProxyType({"no limit": 0.0, "default": 300.0, "about 100 requests": 0.4})


def measure(server: LiveServer, bodies: Path, seconds: float) -> tuple[float, LoadResult]:
    """Return the processor time of a request in microseconds, and the figures of the load."""
    target = MeasuredServer.of(server.url, ServerApi.EMBEDDINGS, None)
    before = processor_s(server.process.pid)
    found = run_generator(make_orders(target, bodies, LOAD, duration_s=seconds, timeout_s=20.0, seed=1), LOAD)
    spent_s = processor_s(server.process.pid) - before
    return 1e6 * spent_s / sum(found.statuses.values()), found


def main(arguments: Sequence[str] | None = None) -> int:
    costs_us: dict[str, list[float]] = {name: [] for name in AGES_S}
    rates: dict[str, list[float]] = {name: [] for name in AGES_S}
    failed = 0
    with start(make_parser(__doc__, rounds=5, seconds=5, serve=SERVE_WITH_ENGINES), arguments) as run:
        bodies = run.folder / "bodies"
        bodies.write_bytes(BODY)
        quiet = ("--engine", "fake", "--no-access-log", "--max-connection-age-s")
        servers = {name: run.serve(*quiet, age_s, name=name) for name, age_s in AGES_S.items()}
        for counts, name in take_turns(servers, run.options.rounds):
            cost_us, found = measure(servers[name], bodies, run.options.seconds)
            failed += found.errors
            if counts:
                costs_us[name].append(cost_us)
                rates[name].append(found.statuses[OK] / found.elapsed_s)
    figures = [Figure("requests without status 200", "requests", (float(failed),), 0)]
    for name in AGES_S:
        figures.append(Figure(f"{name}: processor time of a request", "us", tuple(costs_us[name])))
        figures.append(Figure(name, "requests/s", tuple(rates[name])))
    return run.finish("connection_age", "the longest age of connections", figures)


if __name__ == "__main__":
    sys.exit(main())
