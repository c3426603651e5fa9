"""What one request costs the event loop, beside a minimal server and beside another checkout.

    make bench-path ARGS="--before ../other-checkout"

One client sends the same short text again and again, to the fake engine and to the real one, whose calls
empty the caches that the code of the server needs. The time is that of the event loop's thread by the
scheduler of Linux, so it includes the system calls and nothing that other threads do. The servers take turns.
The minimal server is starlette with orjson and the same tokenizer, without an engine. The functions, files
and coroutines that the request passes are counted too (`support.request_path`).
"""

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.before_after import Client, command_of, read_checkouts
from bench.program import Run, make_parser, start, take_turns
from bench.report import Figure, at_least, ratios_of
from support.request_path import MOST_COROUTINES, MOST_FILES, MOST_FUNCTIONS, trace_request
from support.source_tree import ROOT

SEED = 20_261_128
MINIMAL = "minimal server"
ENGINES: Mapping[str, tuple[str, ...]] = {"fake engine": ("--engine", "fake"), "real engine": ()}
# Medians of pairs on a shared machine repeat to about this much.
PROMISED_RATIO = 0.98


def start_servers(run: Run, checkouts: Mapping[str, Path]) -> dict[tuple[str, str], Client]:
    """Start each checkout with each engine, and the minimal server; return their clients."""
    minimal = ("env", f"PYTHONPATH={':'.join(sys.path)}", sys.executable, "-m", "bench.minimal_server")
    clients = {(MINIMAL, ""): Client(run.serve(name=MINIMAL, command=minimal))}
    for engine, arguments in ENGINES.items():
        for name, checkout in checkouts.items():
            server = run.serve(
                *arguments, "--no-access-log", name=f"{engine} {name}", command=command_of(checkout)
            )
            clients[engine, name] = Client(server)
    return clients


def figures_of(found: Mapping[tuple[str, str], Sequence[float]]) -> list[Figure]:
    """Return the times, and how much better this checkout is than the other one."""
    figures = [Figure(", ".join(filter(None, each)), "us", tuple(times)) for each, times in found.items()]
    for engine in ENGINES:
        before, after = found.get((engine, "before")), found[engine, "after"]
        if before:
            better = ratios_of(before, after)
            figures.append(at_least(f"{engine}, how much better", "ratio", better, PROMISED_RATIO))
        minimal = ratios_of(after, found[MINIMAL, ""])
        figures.append(Figure(f"{engine}, times the minimal server", "ratio", tuple(minimal)))
    return figures


def count_path() -> list[Figure]:
    """Return the size of the path of a request through this checkout."""
    path = trace_request()
    return [
        Figure("functions", "count", (len(path.functions),), MOST_FUNCTIONS),
        Figure("files", "count", (len(path.files),), MOST_FILES),
        Figure("coroutines inside each other", "count", (len(path.coroutines),), MOST_COROUTINES),
        Figure("calls of functions", "count", (len(path.calls),)),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, rounds=10)
    parser.add_argument("--before", type=Path, help="The other checkout.")
    parser.add_argument("--requests", type=int, default=2_000, help="How many a time is the mean of.")
    with start(parser, arguments, seed=SEED) as run:
        counts = count_path()
        clients = start_servers(run, read_checkouts(run.options))
        found = defaultdict[tuple[str, str], list[float]](list)
        for is_counted, each in take_turns(clients, run.options.rounds):
            time_us = clients[each].spent_us(run.options.requests)
            if is_counted:
                found[each].append(time_us)
    title = f"the event loop's thread for one short text, {ROOT.name}"
    return run.finish("request-path", title, [*figures_of(found), *counts])


if __name__ == "__main__":
    sys.exit(main())
