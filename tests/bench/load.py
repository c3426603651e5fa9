"""Throughput: the server under 32 clients, its in-process ceiling, and the ceiling's own peers.

    make bench-load

In each round every contestant runs over the same texts, one after the other, in an order that turns
from round to round. The promises are about the medians of each round's ratios, since figures drift
between rounds and ratios do not.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.generator import run_load, write_bodies
from bench.program import SERVE, Run, make_parser, start
from bench.report import Figure, at_least
from bench.rigs import BareSession, Ceiling, Oracle, Rig, Tokenizing, shuffled
from support.texts import medium_texts, mixed_texts, short_texts

CONNECTIONS = 32
SEED = 20_260_101
ORACLE_SHARE = 4  # the oracle is slow: it gets each fourth text of the sorted ones


@dataclass(frozen=True, slots=True)
class Corpus:
    """Texts of one kind, more than one round can use up; `promised` is the server's share of the ceiling."""

    name: str
    texts: Callable[[int, int], Sequence[str]]
    count: int
    promised: float


CORPORA = (
    Corpus("short", short_texts, 12_000, 0.85),
    Corpus("45-55 words", medium_texts, 4_000, 0.92),
    Corpus("mixed", mixed_texts, 5_000, 0.90),
)

Measure = Callable[[Sequence[str]], float]


@dataclass(frozen=True, slots=True)
class Round:
    """Texts a second of each contestant over the same texts."""

    server: float
    ceiling: float
    ceiling_from_text: float
    bare: float
    oracle: float


def measure_round(
    number: int, texts: Sequence[str], server: Callable[[], tuple[int, float]], rigs: Mapping[str, Measure]
) -> Round:
    """The server says how many of the texts it got through; the others run over just these."""
    count, rate = server()
    done = [texts[index % len(texts)] for index in range(count)]
    oracle_texts = sorted(done, key=len)[::ORACLE_SHARE]
    turns = {"ceiling": done, "bare": done, "oracle": oracle_texts, "tokenizing": done}
    names = list(turns)
    taken = {name: rigs[name](turns[name]) for name in names[number % 4 :] + names[: number % 4]}
    return Round(
        server=rate,
        ceiling=count / taken["ceiling"],
        ceiling_from_text=count / (taken["ceiling"] + taken["tokenizing"]),
        bare=count / taken["bare"],
        oracle=len(oracle_texts) / taken["oracle"],
    )


def figures_of(corpus: Corpus, rounds: Sequence[Round]) -> list[Figure]:
    """The contestants' rates and the ratios that are promised."""

    def column(value: Callable[[Round], float]) -> tuple[float, ...]:
        return tuple(value(found) for found in rounds)

    def ratio(name: str, value: Callable[[Round], float], bound: float) -> Figure:
        return at_least(f"{corpus.name}: {name}", "ratio", column(value), bound)

    rates = {"server": lambda r: r.server, "ceiling": lambda r: r.ceiling, "bare session": lambda r: r.bare}
    rates["sentence-transformers"] = lambda r: r.oracle
    return [
        *(Figure(f"{corpus.name}: {name}", "texts/s", column(value)) for name, value in rates.items()),
        ratio("server / ceiling", lambda r: r.server / r.ceiling, corpus.promised),
        ratio("ceiling / bare session", lambda r: r.ceiling / r.bare, 0.95),
        ratio("ceiling / sentence-transformers", lambda r: r.ceiling_from_text / r.oracle, 3.3),
    ]


LOADERS: Mapping[str, Callable[[Path], Rig]] = {
    "ceiling": Ceiling,
    "bare": BareSession,
    "oracle": Oracle,
    "tokenizing": Tokenizing,
}


def run_corpus(corpus: Corpus, url: str, rigs: Mapping[str, Measure], run: Run) -> list[Figure]:
    texts = shuffled(corpus.texts(SEED, corpus.count), SEED)
    bodies = write_bodies(run.folder / "bodies", texts)

    def server() -> tuple[int, float]:
        found = run_load(url, bodies, connections=CONNECTIONS, duration_s=run.options.seconds)
        return found.requests, found.rate

    rounds = []
    for number in range(run.options.rounds):
        rounds.append(measure_round(number, texts, server, rigs))
        print(f"{corpus.name}, round {number + 1}: {rounds[-1]}", flush=True)
    return figures_of(corpus, rounds)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, rounds=5, seconds=12, serve=SERVE)
    parser.add_argument("--corpus", action="append", choices=[corpus.name for corpus in CORPORA])
    figures: list[Figure] = []
    with start(parser, arguments, seed=SEED, needs_wrk=True) as run:
        server = run.serve()
        rigs = {name: run.rig(load) for name, load in LOADERS.items()}
        for corpus in CORPORA:
            if run.options.corpus is None or corpus.name in run.options.corpus:
                figures += run_corpus(corpus, server.url, rigs, run)
    return run.finish("load", f"{CONNECTIONS} clients in a closed loop, base64", figures)


if __name__ == "__main__":
    sys.exit(main())
