"""`vecmill embed` over a file of texts, against the in-process ceiling of its engine.

    make bench-corpus

In each round the command and the ceiling run over the same texts, one after the other, and change places
from round to round. The ceiling is a bare loop over batches sorted by length, texts already tokenised; the
command reads and tokenises them, and brings its rows to the disk. What is promised is about the speed that
the command tells, from its first text to its last; that of all its time is there to see.
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.program import make_parser, start
from bench.report import Figure, at_least
from bench.rigs import Ceiling, shuffled
from support.texts import mixed_texts

SEED = 20_260_102
# Some twenty seconds each: the speed of a shared machine changes within minutes, and a round is to see one.
TEXTS = 2_000
PROMISED = 0.95


@dataclass(frozen=True, slots=True)
class Round:
    """Texts a second over the same texts: as the command tells, over its whole time, and the ceiling's."""

    told: float
    whole: float
    ceiling: float


@dataclass(frozen=True, slots=True)
class Corpus:
    """A file of texts, and a folder for what comes of it."""

    texts: Sequence[str]
    folder: Path

    @property
    def file(self) -> Path:
        """The input."""
        return self.folder / "corpus.jsonl"

    def write(self) -> None:
        """Write the input."""
        lines = (json.dumps({"id": number, "text": text}) for number, text in enumerate(self.texts))
        self.file.write_text("\n".join(lines) + "\n", "utf-8")

    def embed(self, output: str, *options: str) -> tuple[float, float]:
        """Run the command: the texts a second that it tells, and over the whole of its time."""
        line = [sys.executable, "-m", "vecmill", "embed", str(self.file), "-o", str(self.folder / output)]
        began = time.perf_counter()
        done = subprocess.run(
            [*line, *options, "--cache-dir", str(self.folder / "cache")],
            capture_output=True,
            text=True,
            check=True,
        )
        whole_s = time.perf_counter() - began
        (self.folder / output).unlink()
        return told_rate(done.stdout), len(self.texts) / whole_s


def told_rate(line: str) -> float:
    """The texts a second in what the command says at its end."""
    found = re.search(r"\(([\d,.]+) texts/s", line)
    assert found is not None, line
    return float(found[1].replace(",", ""))


def measure_round(number: int, corpus: Corpus, ceiling: Callable[[Sequence[str]], float]) -> Round:
    """Both over the same texts; who goes first depends on the round."""
    if number % 2:
        ceiling_s = ceiling(corpus.texts)
        told, whole = corpus.embed(f"{number}.npy")
    else:
        told, whole = corpus.embed(f"{number}.npy")
        ceiling_s = ceiling(corpus.texts)
    return Round(told, whole, len(corpus.texts) / ceiling_s)


def figures_of(rounds: Sequence[Round]) -> list[Figure]:
    """The rates, and the ratio that is promised."""

    def column(value: Callable[[Round], float]) -> tuple[float, ...]:
        return tuple(value(found) for found in rounds)

    ratio = column(lambda found: found.told / found.ceiling)
    return [
        Figure("vecmill embed", "texts/s", column(lambda found: found.told)),
        Figure("vecmill embed, start and end included", "texts/s", column(lambda found: found.whole)),
        Figure("ceiling", "texts/s", column(lambda found: found.ceiling)),
        at_least("vecmill embed / ceiling", "ratio", ratio, PROMISED),
        Figure("start and end included / ceiling", "ratio", column(lambda one: one.whole / one.ceiling)),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, rounds=5)
    parser.add_argument("--texts", type=int, default=TEXTS, help="Of 3 to 280 words.")
    with start(parser, arguments, seed=SEED) as run:
        texts = list(dict.fromkeys(mixed_texts(SEED, run.options.texts)))
        corpus = Corpus(shuffled(texts, SEED), run.folder)
        corpus.write()
        ceiling = run.rig(Ceiling)
        rounds = []
        for number in range(run.options.rounds):
            rounds.append(measure_round(number, corpus, ceiling))
            print(f"round {number + 1}: {rounds[-1]}", flush=True)
    return run.finish("corpus", "vecmill embed over a file", figures_of(rounds))


if __name__ == "__main__":
    sys.exit(main())
