"""The server with the fake engine beside that of another checkout: rates, latencies, event loop time.

    make bench-before ARGS=../other-checkout

The time of a request is that of the event loop's thread by the scheduler of Linux, so it includes the system
calls and nothing that other threads do. The rate of 32 clients and the latency of one are measured too, with
the load of wrk. The servers take turns. `bench.request_path` measures the time of the event loop alone.
"""

import argparse
import sys
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from bench.generator import HEADERS, run_load, write_bodies
from bench.process_use import thread_s
from bench.program import Run, make_parser, start, take_turns
from bench.report import Figure, at_least, ratios_of
from bench.rigs import shuffled
from support.server import LiveServer
from support.source_tree import ROOT
from support.texts import short_texts

SEED = 20_261_122
TEXTS = 3_000
CONNECTIONS = 32
WARM_UP = 300  # requests
BODY = b'{"input": "a short text, as a search for something has it", "encoding_format": "base64"}'
# Medians of pairs on a shared machine repeat to about this much.
PROMISED_RATIO = 0.98
RATE, LATENCY, LOOP = f"{CONNECTIONS} clients", "one client, median", "event loop's thread for a request"
UNITS = {RATE: "requests/s", LATENCY: "ms", LOOP: "us"}


def command_of(checkout: Path) -> tuple[str, ...]:
    """How to call the `vecmill serve` of a checkout with the packages of this environment.

    The module of the command is the one that the checkout names, not the one that is installed.
    """
    project = tomllib.loads((checkout / "services/vecmill_server/pyproject.toml").read_text("utf-8"))
    module, _, name = project["project"]["entry-points"]["vecmill.commands"]["serve"].partition(":")
    # The first argument is the name of the command.
    start = f"import sys; del sys.argv[1]; from {module} import {name}; {name}()"
    sources = [checkout / "libs/vecmill/src", checkout / "services/vecmill_server/src"]
    path = ":".join(map(str, sources))
    return ("env", f"PYTHONPATH={path}", sys.executable, "-c", start)


class Client:
    """One client of a server, which sends the same request again and again."""

    def __init__(self, server: LiveServer) -> None:
        self._pid = server.process.pid
        self._port = urlsplit(server.url).port or 0
        self.spent_us(WARM_UP)

    def spent_us(self, requests: int) -> float:
        """Send so many requests on one connection; return the microseconds of the event loop for each."""
        with closing(HTTPConnection("127.0.0.1", self._port, timeout=20)) as connection:
            self._send(connection)
            before_s = thread_s(self._pid, self._pid)
            for _ in range(requests):
                self._send(connection)
            return 1e6 * (thread_s(self._pid, self._pid) - before_s) / requests

    def _send(self, connection: HTTPConnection) -> None:
        connection.request("POST", "/v1/embeddings", BODY, HEADERS)
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise RuntimeError(f"The server answered {answer.status}.")


def measure(run: Run, checkouts: Mapping[str, Path]) -> dict[tuple[str, str], list[float]]:
    """Return the figures of each round, by what is measured and by checkout."""
    options, found = run.options, defaultdict[tuple[str, str], list[float]](list)
    bodies = write_bodies(run.folder / "bodies", shuffled(short_texts(SEED, TEXTS), SEED))
    quiet = ("--engine", "fake", "--no-access-log")
    servers = {
        name: run.serve(*quiet, name=name, command=command_of(checkout))
        for name, checkout in checkouts.items()
    }
    clients = {name: Client(server) for name, server in servers.items()}
    for counts, name in take_turns(checkouts, options.rounds):
        told = {LOOP: clients[name].spent_us(options.requests)}
        for connections in (CONNECTIONS, 1):
            load = run_load(servers[name].url, bodies, connections=connections, duration_s=options.seconds)
            told |= {RATE: load.rate} if connections > 1 else {LATENCY: load.p50_s * 1e3}
        for what, value in told.items() if counts else ():
            found[what, name].append(value)
    return found


def figures_of(found: Mapping[tuple[str, str], Sequence[float]]) -> list[Figure]:
    """Return the figures of each checkout, and how much better this one is if there are two."""
    figures = [Figure(f"{what}, {name}", UNITS[what], tuple(each)) for (what, name), each in found.items()]
    for what in UNITS:
        after, before = found.get((what, "after"), ()), found.get((what, "before"), ())
        if after and before:
            better = ratios_of(after, before) if what == RATE else ratios_of(before, after)
            figures.append(at_least(f"{what}, how much better", "ratio", better, PROMISED_RATIO))
    return figures


def read_checkouts(options: argparse.Namespace) -> dict[str, Path]:
    """Return the other checkout, if one is named, and this one."""
    before = {} if options.before is None else {"before": options.before.resolve()}
    return {**before, "after": ROOT}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, rounds=10, seconds=4)
    parser.add_argument("checkout", nargs="?", type=Path, help="The other checkout, as --before.")
    parser.add_argument("--before", type=Path, help="The other checkout.")
    parser.add_argument("--requests", type=int, default=2_000, help="How many the event loop's time is of.")
    with start(parser, arguments, seed=SEED, needs_wrk=True) as run:
        run.options.before = run.options.before or run.options.checkout
        found = measure(run, read_checkouts(run.options))
    return run.finish("before-after", "fake engine, short texts, base64", figures_of(found))


if __name__ == "__main__":
    sys.exit(main())
