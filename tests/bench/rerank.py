"""Documents of one query for a reranker that is a language model, against texts without a common beginning.

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
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.report import Figure, finish, warn_if_busy
from bench.size_models import SHAPES, Shape, save_model
from support.source_tree import ROOT

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


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--shape", choices=sorted(SHAPES), help="another model, with all of its layers")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--documents", type=int)
    parser.add_argument("--query-tokens", type=int, default=200)
    parser.add_argument("--document-tokens", type=int, default=100)
    parser.add_argument("--before", type=Path)
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (1 if arguments.full else 3)
    arguments.documents = arguments.documents or (FULL_DOCUMENTS if arguments.full else 100)
    return arguments


def choose_shape(arguments: argparse.Namespace) -> Shape:
    """Return the shape of the model."""
    shape = SHAPES[arguments.shape or PUBLISHED]
    if arguments.shape or arguments.full:
        return shape
    return replace(shape, config={**shape.config, "num_hidden_layers": LAYERS})


def main() -> int:
    """Measure both loads in each round, and print the figures."""
    arguments = parse_arguments()
    warn_if_busy()
    sizes = (arguments.documents, arguments.query_tokens, arguments.document_tokens)
    answers: dict[tuple[str, str], Answers] = {}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        save_model(choose_shape(arguments), folder / "model")
        checkouts = {"ours": ROOT, **({"before": arguments.before.resolve()} if arguments.before else {})}
        probes = {
            side: stack.enter_context(Probe.open(checkout, folder, sizes))
            for side, checkout in checkouts.items()
        }
        for number in range(arguments.rounds):
            for load in LOADS:
                # Each goes first in turn.
                for side in sorted(probes, reverse=number % 2 == 0):
                    answer = probes[side].ask(load, number)
                    answers.setdefault((side, load), []).append(answer)
                    told = f"{answer['wall_s']:.2f} s, {answer['cpu_s']:.2f} s of processor time"
                    print(
                        f"round {number + 1} of {arguments.rounds}: {side}, {load}: {told}", file=sys.stderr
                    )
    settings = {name: str(value) for name, value in vars(arguments).items()}
    return finish(
        "rerank", "texts with a common beginning", list_figures(answers, arguments.documents), settings
    )


def list_figures(answers: Mapping[tuple[str, str], Answers], documents: int) -> list[Figure]:
    """Return the figures of all rounds."""
    figures = [
        Figure(
            f"{load}: {side}",
            "pairs/s",
            tuple(documents / answer["wall_s"] for answer in answers[side, load]),
        )
        for side, load in sorted(answers)
    ]
    differences = tuple(
        answer["difference"] for (side, _), told in answers.items() if side == "ours" for answer in told
    )
    figures.append(Figure("largest difference to a text alone", "", differences, MOST_DIFFERENCE))
    for load, bound in LOADS.items():
        pairs = list(zip(answers["ours", load], answers.get(("before", load), ()), strict=False))
        if not pairs:
            continue
        figures += [
            Figure(f"{load}: gain", "", _ratios(pairs, "wall_s"), bound, at_most=False),
            Figure(f"{load}: gain in processor time", "", _ratios(pairs, "cpu_s")),
            Figure(f"{load}: largest change of a number", "", tuple(map(_change, pairs)), MOST_CHANGE),
        ]
    return figures


def _ratios(pairs: list[tuple[Mapping[str, Any], Mapping[str, Any]]], name: str) -> tuple[float, ...]:
    return tuple(before[name] / ours[name] for ours, before in pairs)


def _change(pair: tuple[Mapping[str, Any], Mapping[str, Any]]) -> float:
    ours, before = (np.asarray(answer["rows"]) for answer in pair)
    return float(np.abs(ours - before).max())


if __name__ == "__main__":
    sys.exit(main())
