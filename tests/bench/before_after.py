"""Compares the server of this checkout with that of another: requests per second, and one client's latency.

The engine is the fake one, so that all time is the server's and the library's own.

make bench-before ARGS=../other-checkout
"""

import argparse
import statistics
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.generator import require_wrk, run_load, write_bodies
from bench.report import Figure, finish, warn_if_busy
from bench.rigs import shuffled
from support.server import live_server
from support.source_tree import ROOT
from support.texts import short_texts

SEED = 20_261_122
TEXTS = 3_000
CONNECTIONS = 32
# Medians of pairs on a shared machine repeat to about this much.
PROMISED_RATIO = 0.98


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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("before", type=Path, help="The other checkout.")
    parser.add_argument("--rounds", type=int, default=10, help="How many pairs.")
    parser.add_argument("--seconds", type=int, default=4, help="How long each load lasts.")
    options = parser.parse_args(arguments)
    require_wrk()
    warn_if_busy()
    print(f"seed {SEED}, {options.rounds} pairs of {options.seconds} s")
    rates: dict[str, list[float]] = {"before": [], "after": []}
    latencies_ms: dict[str, list[float]] = {"before": [], "after": []}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vecmill-bench-")))
        bodies = write_bodies(folder / "bodies", shuffled(short_texts(SEED, TEXTS), SEED))
        servers = {}
        for name, checkout in (("before", options.before.resolve()), ("after", ROOT)):
            (folder / name).mkdir()
            quiet = ("--engine", "fake", "--no-access-log")
            servers[name] = stack.enter_context(
                live_server(folder / name, arguments=quiet, command=command_of(checkout))
            )
        for number in range(options.rounds + 1):
            order = ("before", "after") if number % 2 else ("after", "before")
            for connections in (CONNECTIONS, 1):
                for name in order:
                    found = run_load(
                        servers[name].url, bodies, connections=connections, duration_s=options.seconds
                    )
                    if not number:  # the first pair warms up
                        continue
                    if connections == 1:
                        latencies_ms[name].append(found.p50_s * 1e3)
                    else:
                        rates[name].append(found.rate)
    rate_ratios = [after / before for before, after in zip(rates["before"], rates["after"], strict=True)]
    latency_ratios = [
        before / after for before, after in zip(latencies_ms["before"], latencies_ms["after"], strict=True)
    ]
    figures = [
        *(Figure(f"{CONNECTIONS} clients, {name}", "requests/s", tuple(rates[name])) for name in rates),
        *(Figure(f"one client, {name}, median", "ms", tuple(latencies_ms[name])) for name in latencies_ms),
        Figure("requests/s, after / before", "", tuple(rate_ratios), PROMISED_RATIO, at_most=False),
        Figure("latency, before / after", "", tuple(latency_ratios), PROMISED_RATIO, at_most=False),
    ]
    print(f"medians: {statistics.median(rate_ratios):.3f} and {statistics.median(latency_ratios):.3f}")
    settings = {"rounds": options.rounds, "seconds": options.seconds, "seed": SEED}
    return finish("before-after", "fake engine, short texts, base64", figures, settings)


if __name__ == "__main__":
    sys.exit(main())
