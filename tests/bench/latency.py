"""What HTTP adds for one client: the median of a short text over the bare wide call.

make bench-latency
"""

import sys
from collections.abc import Sequence

from bench.generator import run_load, write_bodies
from bench.program import SERVE, make_parser, start
from bench.report import Figure
from bench.rigs import WideCall, shuffled
from support.texts import short_texts

SEED = 20_260_102
TEXTS = 3_000
PROMISED_MS = 0.7


def main(arguments: Sequence[str] | None = None) -> int:
    texts = shuffled(short_texts(SEED, TEXTS), SEED)
    http_ms, bare_ms = [], []
    parser = make_parser(__doc__, rounds=5, seconds=5, serve=SERVE)
    with start(parser, arguments, seed=SEED, needs_wrk=True) as run:
        server, measure = run.serve(), run.rig(WideCall)
        bodies = write_bodies(run.folder / "bodies", texts)
        for _ in range(run.options.rounds):
            found = run_load(server.url, bodies, connections=1, duration_s=run.options.seconds)
            http_ms.append(found.p50_s * 1e3)
            bare_ms.append(measure(texts[: found.requests]) * 1e3)
    added_ms = tuple(http - bare for http, bare in zip(http_ms, bare_ms, strict=True))
    figures = [
        Figure("one client over HTTP, median", "ms", tuple(http_ms)),
        Figure("bare wide call, median", "ms", tuple(bare_ms)),
        Figure("added by HTTP", "ms", added_ms, PROMISED_MS),
    ]
    return run.finish("latency", "one client, short texts, base64", figures)


if __name__ == "__main__":
    sys.exit(main())
