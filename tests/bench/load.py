"""Throughput: the server under 32 clients, its in-process ceiling, and the ceiling's own peers.

    make bench-load

In each round every contestant runs over the same texts, one after the other, in an order that turns
from round to round. The promises are about the medians of each round's ratios, since figures drift
between rounds and ratios do not.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.generator import require_wrk, run_load, write_bodies
from bench.report import Figure, finish, warn_if_busy
from bench.rigs import BareSession, Ceiling, Oracle, Rig, Tokenizing, rig_process, shuffled
from support.server import live_server
from support.texts import medium_texts, mixed_texts, short_texts

CONNECTIONS = 32
SEED = 20_260_101
ORACLE_SHARE = 4  # the oracle is slow: it gets each fourth text of the sorted ones
SERVE = Path(".venv/serve/bin/vecmill")


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
        return Figure(f"{corpus.name}: {name}", "ratio", column(value), bound, at_most=False)

    rates = {"server": lambda r: r.server, "ceiling": lambda r: r.ceiling, "bare session": lambda r: r.bare}
    rates["sentence-transformers"] = lambda r: r.oracle
    return [
        *(Figure(f"{corpus.name}: {name}", "texts/s", column(value)) for name, value in rates.items()),
        ratio("server / ceiling", lambda r: r.server / r.ceiling, corpus.promised),
        ratio("ceiling / bare session", lambda r: r.ceiling / r.bare, 0.95),
        ratio("ceiling / sentence-transformers", lambda r: r.ceiling_from_text / r.oracle, 3.3),
    ]


def run_corpus(
    corpus: Corpus, url: str, rigs: Mapping[str, Measure], options: argparse.Namespace
) -> list[Figure]:
    texts = shuffled(corpus.texts(SEED, corpus.count), SEED)
    with tempfile.TemporaryDirectory(prefix="vecmill-bench-") as folder:
        bodies = write_bodies(Path(folder) / "bodies", texts)

        def server() -> tuple[int, float]:
            found = run_load(url, bodies, connections=CONNECTIONS, duration_s=options.seconds)
            return found.requests, found.rate

        rounds = []
        for number in range(options.rounds):
            rounds.append(measure_round(number, texts, server, rigs))
            print(f"{corpus.name}, round {number + 1}: {rounds[-1]}", flush=True)
    return figures_of(corpus, rounds)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=12, help="How long the load of a round lasts.")
    parser.add_argument("--serve", type=Path, default=SERVE, help="The vecmill that serves.")
    parser.add_argument("--corpus", action="append", choices=[corpus.name for corpus in CORPORA])
    options = parser.parse_args(arguments)
    require_wrk()
    warn_if_busy()
    print(f"seed {SEED}, {CONNECTIONS} connections, {options.rounds} rounds of {options.seconds} s")
    figures: list[Figure] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vecmill-bench-")))
        server = stack.enter_context(live_server(folder, command=[str(options.serve)]))
        loaders: dict[str, Callable[[Path], Rig]] = {
            "ceiling": Ceiling,
            "bare": BareSession,
            "oracle": Oracle,
            "tokenizing": Tokenizing,
        }
        rigs = {
            name: stack.enter_context(rig_process(load, folder / "cache")) for name, load in loaders.items()
        }
        for corpus in CORPORA:
            if options.corpus is None or corpus.name in options.corpus:
                figures += run_corpus(corpus, server.url, rigs, options)
    settings = {
        "rounds": options.rounds,
        "seconds": options.seconds,
        "connections": CONNECTIONS,
        "seed": SEED,
    }
    return finish("load", "32 clients in a closed loop, base64", figures, settings)


if __name__ == "__main__":
    sys.exit(main())
