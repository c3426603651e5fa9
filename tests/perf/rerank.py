"""Documents of one query for a reranker that is a language model, against texts without a common beginning.

    make bench-rerank ARGS="--before ../other-checkout"

The model has the layers of Qwen3-Reranker-0.6B and random weights. Each text is a query with an instruction,
which all texts of a request have in common, and a document. The other load has texts of the same lengths
that have nothing in common. With `--before` another checkout computes the same loads, in turn with this one.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from perf.report import Figure, finish, warn_if_busy
from perf.size_models import SHAPES, save_model
from support.source_tree import ROOT

PROBE = Path(__file__).with_name("rerank_probe.py")
MOST_DIFFERENCE = 1e-6
LEAST_GAIN, LEAST_KEPT = 2.0, 0.98


def measure(checkout: Path, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what `rerank_probe` says of the library of `checkout`."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "libs/vecmill/src")}
    sizes = (arguments.documents, arguments.query_tokens, arguments.document_tokens)
    cache = folder / f"cache-{checkout.name}"
    line = [sys.executable, str(PROBE), str(folder / "model"), str(cache), "1", *map(str, sizes)]
    ended = subprocess.run(line, env=environment, check=True, text=True, stdout=subprocess.PIPE)
    told: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return told


def main() -> int:
    """Measure both loads in each round, and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="Qwen3-Embedding-0.6B")
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--query-tokens", type=int, default=200)
    parser.add_argument("--document-tokens", type=int, default=100)
    parser.add_argument("--before", type=Path)
    arguments = parser.parse_args()
    warn_if_busy()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_model(SHAPES[arguments.shape], folder / "model")
        ours, before = [], []
        for number in range(arguments.rounds):
            ours.append(measure(ROOT, folder, arguments))
            if arguments.before is not None:
                before.append(measure(arguments.before.resolve(), folder, arguments))
            print(f"round {number + 1} of {arguments.rounds}: {ours[-1]}", file=sys.stderr)
    settings = {name: str(value) for name, value in vars(arguments).items()}
    figures = list_figures(arguments.documents, ours, before)
    return finish("rerank", "texts with a common beginning", figures, settings)


def list_figures(documents: int, ours: list[dict[str, Any]], before: list[dict[str, Any]]) -> list[Figure]:
    """Return the figures of all rounds."""

    def rates(rounds: list[dict[str, Any]], load: str) -> tuple[float, ...]:
        return tuple(documents / told[load][0] for told in rounds)

    figures = [
        Figure("a common beginning", "pairs/s", rates(ours, "common")),
        Figure("nothing in common", "pairs/s", rates(ours, "own")),
        Figure(
            "largest difference to a text alone", "", tuple(x["difference"] for x in ours), MOST_DIFFERENCE
        ),
    ]
    for load, bound in (("common", LEAST_GAIN), ("own", LEAST_KEPT)):
        pairs = zip(rates(ours, load), rates(before, load), strict=False)
        ratios = tuple(one / other for one, other in pairs)
        if ratios:
            figures.append(Figure(f"{load}: this checkout / the other", "", ratios, bound, at_most=False))
    return figures


if __name__ == "__main__":
    sys.exit(main())
