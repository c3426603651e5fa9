"""Throughput and median of 32 clients with Ray Serve, against `vecmill serve` with as many cores.

    make bench-ray

In each round both servers get the same requests, one after the other, in an order that turns from round to
round. The promises are about the medians of each round's ratios and differences.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.generator import LoadResult, require_wrk, run_load, write_bodies
from bench.load import CONNECTIONS, CORPORA, SEED, Corpus
from bench.report import Figure, finish, warn_if_busy
from bench.rigs import shuffled
from support.ray_server import RAY, ray_server
from support.server import MODEL, live_server

# With a second model the requests pass the router.
OTHER_MODELS = '[[models]]\nmodel = "{other}"\n'
CONFIG = f'access_log = true\n\n[[models]]\nmodel = "{MODEL}"\n'

LEAST_SHARE = 0.80
MOST_MORE_S = 0.003

Rounds = list[tuple[LoadResult, LoadResult]]


def measure(direct: Callable[[], LoadResult], ray: Callable[[], LoadResult], rounds: int) -> Rounds:
    """The results of both servers, for each round."""
    found: Rounds = []
    for number in range(rounds):
        if number % 2:
            through_ray = ray()
            found.append((direct(), through_ray))
        else:
            found.append((direct(), ray()))
        print(found[-1], flush=True)
    return found


def figures_of(name: str, rounds: Rounds) -> list[Figure]:
    """The rates, the share of the direct rate, and the difference of the medians."""
    return [
        Figure(f"{name}: direct", "texts/s", tuple(direct.rate for direct, _ in rounds)),
        Figure(f"{name}: Ray Serve", "texts/s", tuple(ray.rate for _, ray in rounds)),
        Figure(
            f"{name}: Ray Serve / direct",
            "ratio",
            tuple(ray.rate / direct.rate for direct, ray in rounds),
            LEAST_SHARE,
            at_most=False,
        ),
        Figure(
            f"{name}: more at the median",
            "s",
            tuple(ray.p50_s - direct.p50_s for direct, ray in rounds),
            MOST_MORE_S,
        ),
    ]


def run_corpus(corpus: Corpus, urls: tuple[str, str], folder: Path, options: argparse.Namespace) -> Rounds:
    bodies = write_bodies(folder / "bodies", shuffled(corpus.texts(SEED, corpus.count), SEED))

    def load(url: str) -> Callable[[], LoadResult]:
        return lambda: run_load(url, bodies, connections=CONNECTIONS, duration_s=options.seconds)

    direct, ray = map(load, urls)
    return measure(direct, ray, options.rounds)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=12, help="How long the load of a round lasts.")
    parser.add_argument("--cores", type=int, default=1, help="The cores of each server.")
    parser.add_argument("--other", help="A second model, whose presence puts the router before both.")
    parser.add_argument("--corpus", action="append", choices=[corpus.name for corpus in CORPORA])
    options = parser.parse_args(arguments)
    require_wrk()
    warn_if_busy()
    figures: list[Figure] = []
    config = CONFIG + (OTHER_MODELS.format(other=options.other) if options.other else "")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vecmill-bench-")))
        cores = f"--cores={options.cores}"
        direct = stack.enter_context(
            live_server(folder, command=[f"{RAY}/bin/vecmill"], arguments=[MODEL, cores])
        )
        ray = stack.enter_context(ray_server(folder, config, f"--replica-cores={options.cores}"))
        for corpus in CORPORA:
            if options.corpus is None or corpus.name in options.corpus:
                rounds = run_corpus(corpus, (direct.url, ray.url), folder, options)
                figures += figures_of(corpus.name, rounds)
    settings = {name: getattr(options, name) for name in ("rounds", "seconds", "cores", "other")}
    return finish("ray", "32 clients in a closed loop, base64", figures, settings)


if __name__ == "__main__":
    sys.exit(main())
