"""What HTTP adds for one client: the median of a short text over the bare wide call.

make bench-latency
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.generator import require_wrk, run_load, write_bodies
from bench.report import Figure, finish, warn_if_busy
from bench.rigs import WideCall, rig_process, shuffled
from support.server import live_server
from support.texts import short_texts

SEED = 20_260_102
TEXTS = 3_000
PROMISED_MS = 0.7
SERVE = Path(".venv/serve/bin/vecmill")


def read_options(doc: str | None, seed: int, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the options of a measurement of one client's latency, and say what is about to run."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5, help="How long the load of a round lasts.")
    parser.add_argument("--serve", type=Path, default=SERVE, help="The vecmill that serves.")
    options = parser.parse_args(arguments)
    require_wrk()
    warn_if_busy()
    print(f"seed {seed}, {options.rounds} rounds of {options.seconds} s")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = read_options(__doc__, SEED, arguments)
    texts = shuffled(short_texts(SEED, TEXTS), SEED)
    http_ms, bare_ms = [], []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vecmill-bench-")))
        server = stack.enter_context(live_server(folder, command=[str(options.serve)]))
        measure = stack.enter_context(rig_process(WideCall, folder / "cache"))
        bodies = write_bodies(folder / "bodies", texts)
        for _ in range(options.rounds):
            found = run_load(server.url, bodies, connections=1, duration_s=options.seconds)
            http_ms.append(found.p50_s * 1e3)
            bare_ms.append(measure(texts[: found.requests]) * 1e3)
    added_ms = tuple(http - bare for http, bare in zip(http_ms, bare_ms, strict=True))
    figures = [
        Figure("one client over HTTP, median", "ms", tuple(http_ms)),
        Figure("bare wide call, median", "ms", tuple(bare_ms)),
        Figure("added by HTTP", "ms", added_ms, PROMISED_MS),
    ]
    settings = {"rounds": options.rounds, "seconds": options.seconds, "seed": SEED}
    return finish("latency", "one client, short texts, base64", figures, settings)


if __name__ == "__main__":
    sys.exit(main())
