"""Documents of one query for a reranker that is a language model, against texts without a shared prefix.

    make bench-rerank ARGS="--before ../other-checkout"

The model has random weights and the shape of Qwen3-Reranker-0.6B, by default its first two layers alone: all
layers take the same time, and the embedding table takes none. `--full` computes all 28 layers, for so few
documents that it ends within minutes. Each text is a query with an instruction, which all texts of a request
have in common, and a document. The other load has texts of the same lengths that have nothing in common. With
`--before` another checkout computes the same texts, in turn with this one. Both processes have their model
open all the time. Ratios of processor time are shown too: on a busy machine they tell more than wall time.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.before_after import read_checkouts
from bench.program import make_parser, start
from bench.report import Figure, at_least, ratios_of
from bench.size_models import SHAPES, Shape, save_model

PROBE = Path(__file__).with_name("rerank_probe.py")
PUBLISHED = "Qwen3-Embedding-0.6B"  # Qwen3-Reranker-0.6B has the same layers
LAYERS = 2
FULL_DOCUMENTS = 24
MOST_DIFFERENCE, MOST_CHANGE = 1e-6, 1e-4
LEAST_GAIN, LEAST_KEPT = 2.0, 0.98
LOADS = {"common": LEAST_GAIN, "own": LEAST_KEPT}
Answers = list[Mapping[str, Any]]


class Probe:
    """A process of `rerank_probe` with the library of one checkout."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    @classmethod
    @contextmanager
    def open(cls, checkout: Path, folder: Path, sizes: tuple[int, ...]) -> Iterator["Probe"]:
        """Start the process, and end it with the context."""
        environment = {**os.environ, "PYTHONPATH": str(checkout / "libs/vecmill/src")}
        cache = folder / f"cache-{checkout.name}"
        line = [sys.executable, str(PROBE), str(folder / "model"), str(cache), *map(str, sizes)]
        with subprocess.Popen(
            line, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            yield cls(process)
            assert process.stdin is not None
            process.stdin.close()

    def ask(self, load: str, seed: int) -> Mapping[str, Any]:
        """Return what the process measures of one load."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{load} {seed}\n")
        self._process.stdin.flush()
        answer: Mapping[str, Any] = json.loads(self._process.stdout.readline())
        return answer


def choose_shape(arguments: argparse.Namespace) -> Shape:
    """Return the shape of the model."""
    shape = SHAPES[arguments.shape or PUBLISHED]
    if arguments.shape or arguments.full:
        return shape
    return replace(shape, config={**shape.config, "num_hidden_layers": LAYERS})


def list_figures(answers: Mapping[tuple[str, str], Answers], documents: int) -> list[Figure]:
    """Return the figures of all rounds."""
    figures = [
        Figure(
            f"{load}: {side}", "pairs/s", tuple(documents / s for s in _column(answers[side, load], "wall_s"))
        )
        for side, load in sorted(answers)
    ]
    differences = tuple(
        answer["difference"] for (side, _), told in answers.items() if side == "after" for answer in told
    )
    figures.append(Figure("largest difference to a text alone", "", differences, MOST_DIFFERENCE))
    for load, bound in LOADS.items():
        ours, before = answers["after", load], answers.get(("before", load))
        if before is None:
            continue
        changes = tuple(map(_change, ours, before))
        gains = {name: ratios_of(_column(before, name), _column(ours, name)) for name in ("wall_s", "cpu_s")}
        figures += [
            at_least(f"{load}: gain", "", gains["wall_s"], bound),
            Figure(f"{load}: gain in processor time", "", gains["cpu_s"]),
            Figure(f"{load}: largest change of a number", "", changes, MOST_CHANGE),
        ]
    return figures


def _column(answers: Answers, name: str) -> list[float]:
    return [answer[name] for answer in answers]


def _change(ours: Mapping[str, Any], before: Mapping[str, Any]) -> float:
    return float(np.abs(np.asarray(ours["rows"]) - np.asarray(before["rows"])).max())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, help="3 by default, or 1 of the full model.")
    parser.add_argument("--shape", choices=sorted(SHAPES), help="Another model, with all of its layers.")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--documents", type=int, help=f"100, or {FULL_DOCUMENTS} of the full model.")
    parser.add_argument("--query-tokens", type=int, default=200)
    parser.add_argument("--document-tokens", type=int, default=100)
    parser.add_argument("--before", type=Path, help="Another checkout.")
    answers: dict[tuple[str, str], Answers] = {}
    with start(parser, arguments) as run:
        options = run.options
        options.rounds = options.rounds or (1 if options.full else 3)
        options.documents = options.documents or (FULL_DOCUMENTS if options.full else 100)
        sizes = (options.documents, options.query_tokens, options.document_tokens)
        save_model(choose_shape(options), run.folder / "model")
        probes = {
            side: run.stack.enter_context(Probe.open(checkout, run.folder, sizes))
            for side, checkout in read_checkouts(options).items()
        }
        for number in range(options.rounds):
            for load in LOADS:
                # Each goes first in turn.
                for side in sorted(probes, reverse=number % 2 == 0):
                    answer = probes[side].ask(load, number)
                    answers.setdefault((side, load), []).append(answer)
                    told = f"{answer['wall_s']:.2f} s, {answer['cpu_s']:.2f} s of processor time"
                    print(f"round {number + 1}: {side}, {load}: {told}", flush=True)
    figures = list_figures(answers, options.documents)
    return run.finish("rerank", "texts with a shared prefix", figures)


if __name__ == "__main__":
    sys.exit(main())
