"""Texts with a common beginning, and texts without one: the seconds of each, as JSON on standard output.

Run as `rerank_probe.py MODEL CACHE ROUNDS DOCUMENTS QUERY_TOKENS DOCUMENT_TOKENS`, with the vecmill that
PYTHONPATH names. The texts of a load are sent as one request, in turn with the other load.
"""

import json
import random
import sys
import time
from pathlib import Path

import numpy as np

from vecmill import MillConfig, SyncMill

SEED = 20_261_125
ALONE = 3


def main() -> None:
    """Measure, and print the seconds of each round, and the largest difference to a text alone."""
    folder, cache, *numbers = sys.argv[1:]
    rounds, documents, query, document = map(int, numbers)
    chance = random.Random(SEED)
    vocabulary = json.loads((Path(folder) / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    words = sorted(word for word in vocabulary if word.isalpha() and word.isascii() and len(word) > 2)

    def draw(count: int) -> str:
        return " ".join(chance.choices(words, k=count))

    found: dict[str, list[float]] = {"common": [], "own": []}
    with SyncMill(folder, config=MillConfig(cache_dir=Path(cache))) as mill:
        mill.embed([draw(query + document)])
        differences = []
        for _ in range(rounds):
            beginning = draw(query)
            loads = {
                "common": [f"{beginning} {draw(document)}" for _ in range(documents)],
                "own": [draw(query + document) for _ in range(documents)],
            }
            for name, texts in loads.items():
                began = time.perf_counter()
                rows = mill.embed(texts)
                found[name].append(time.perf_counter() - began)
                alone = np.stack([mill.embed([text])[0] for text in texts[:ALONE]])
                differences.append(float(np.abs(alone - rows[:ALONE]).max()))
    print(json.dumps({**found, "difference": max(differences)}))


main()
