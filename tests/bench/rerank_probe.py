"""Computes texts with a shared prefix, and texts without one, as its standard input asks.

Run as `rerank_probe.py MODEL CACHE DOCUMENTS QUERY_TOKENS DOCUMENT_TOKENS`, with the vecmill that PYTHONPATH
names. Each line of standard input is a load and a seed, such as `common 1`. The answer is a line of JSON:
`wall_s` and `cpu_s`, the time that the texts took as one request, and of the whole process on all cores;
`difference`, the largest difference to a text alone; `rows`, the embeddings of a few texts.
"""

import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vecmill import MillConfig, SyncMill

ALONE = 3

Draw = Callable[[int], str]


def draw_words(folder: Path, seed: int) -> Draw:
    """Return a function that draws a text of so many words, each of which is a token."""
    chance = random.Random(seed)
    vocabulary = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    words = sorted(word for word in vocabulary if word.isalpha() and word.isascii() and len(word) > 2)
    return lambda count: " ".join(chance.choices(words, k=count))


def draw_texts(draw: Draw, load: str, documents: int, query: int, document: int) -> list[str]:
    """Return the texts of a load."""
    if load == "own":
        return [draw(query + document) for _ in range(documents)]
    prefix = draw(query)
    return [f"{prefix} {draw(document)}" for _ in range(documents)]


def measure(mill: SyncMill, texts: Sequence[str]) -> dict[str, Any]:
    """Return what the module docstring lists."""
    began, cpu_began = time.perf_counter(), time.process_time()
    rows = mill.embed(texts)
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
    alone = np.stack([mill.embed([text])[0] for text in texts[:ALONE]])
    return {
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "difference": float(np.abs(alone - rows[:ALONE]).max()),
        "rows": rows[:ALONE].tolist(),
    }


def main() -> None:
    """Answer each line of standard input."""
    folder, cache, *numbers = sys.argv[1:]
    documents, query, document = map(int, numbers)
    with SyncMill(folder, config=MillConfig(cache_dir=Path(cache))) as mill:
        mill.embed([draw_words(Path(folder), 0)(query + document)])
        for line in sys.stdin:
            load, seed = line.split()
            texts = draw_texts(draw_words(Path(folder), int(seed)), load, documents, query, document)
            print(json.dumps(measure(mill, texts)), flush=True)


main()
