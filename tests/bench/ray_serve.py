"""Throughput and median of 32 clients with Ray Serve, against `vecmill serve` with as many cores.

    make bench-ray

In each round both servers get the same requests, one after the other, in an order that turns from round to
round. The promises are about the medians of each round's ratios and differences.
"""

import sys
from collections.abc import Mapping, Sequence

from bench.generator import LoadResult, run_load, write_bodies
from bench.load import CONNECTIONS, CORPORA, SEED, Corpus
from bench.program import Run, make_parser, start, take_turns
from bench.report import Figure, at_least, ratios_of
from bench.rigs import shuffled
from support.ray_server import RAY, ray_server
from support.server import MODEL

# With a second model the requests pass the router.
OTHER_MODELS = '[[models]]\nmodel = "{other}"\n'
CONFIG = f'access_log = true\n\n[[models]]\nmodel = "{MODEL}"\n'

LEAST_SHARE = 0.80
MOST_MORE_S = 0.003

DIRECT, THROUGH_RAY = "direct", "Ray Serve"


def run_corpus(corpus: Corpus, urls: Mapping[str, str], run: Run) -> list[Figure]:
    """The rates, the share of the direct rate, and the difference of the medians."""
    bodies = write_bodies(run.folder / "bodies", shuffled(corpus.texts(SEED, corpus.count), SEED))
    found: dict[str, list[LoadResult]] = {name: [] for name in urls}
    for counts, name in take_turns(urls, run.options.rounds):
        load = run_load(urls[name], bodies, connections=CONNECTIONS, duration_s=run.options.seconds)
        if counts:
            found[name].append(load)
            print(f"{corpus.name}, {name}: {load}", flush=True)
    rates = {name: tuple(load.rate for load in loads) for name, loads in found.items()}
    pairs = zip(found[DIRECT], found[THROUGH_RAY], strict=True)
    more_s = tuple(ray.p50_s - direct.p50_s for direct, ray in pairs)
    shares = ratios_of(rates[THROUGH_RAY], rates[DIRECT])
    return [
        *(Figure(f"{corpus.name}: {name}", "texts/s", each) for name, each in rates.items()),
        at_least(f"{corpus.name}: {THROUGH_RAY} / {DIRECT}", "ratio", shares, LEAST_SHARE),
        Figure(f"{corpus.name}: more at the median", "s", more_s, MOST_MORE_S),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, rounds=5, seconds=12)
    parser.add_argument("--cores", type=int, default=1, help="The cores of each server.")
    parser.add_argument("--other", help="A second model, whose presence puts the router before both.")
    parser.add_argument("--corpus", action="append", choices=[corpus.name for corpus in CORPORA])
    figures: list[Figure] = []
    with start(parser, arguments, seed=SEED, needs_wrk=True) as run:
        options = run.options
        config = CONFIG + (OTHER_MODELS.format(other=options.other) if options.other else "")
        direct = run.serve(MODEL, f"--cores={options.cores}", command=[f"{RAY}/bin/vecmill"])
        cores = f"--replica-cores={options.cores}"
        ray = run.stack.enter_context(ray_server(run.folder, config, cores))
        for corpus in CORPORA:
            if options.corpus is None or corpus.name in options.corpus:
                figures += run_corpus(corpus, {DIRECT: direct.url, THROUGH_RAY: ray.url}, run)
    return run.finish("ray", f"{CONNECTIONS} clients in a closed loop, base64", figures)


if __name__ == "__main__":
    sys.exit(main())
