"""Compute texts of several lengths with sentence-transformers on all cores, and say what each took.

Run as a process of its own: `long_text_reference.py MODEL LENGTH...`. Prints the seconds of each as JSON.
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer

from vecmill.hardware.cores import available_cores

SEED = 20_260_108
CALLS = 2


def main(folder: Path, lengths: Sequence[int]) -> None:
    """Measure one text of each length, after one to warm up; the faster of two calls counts."""
    torch.set_num_threads(available_cores())
    model = SentenceTransformer(str(folder), device="cpu")
    draw = torch.Generator().manual_seed(SEED)

    def compute(length: int) -> float:
        ids = torch.randint(5, 1000, (1, length), generator=draw)
        began = time.perf_counter()
        with torch.inference_mode():
            model({"input_ids": ids, "attention_mask": torch.ones_like(ids)})["sentence_embedding"].numpy()
        return time.perf_counter() - began

    compute(128)
    print(json.dumps([min(compute(length) for _ in range(CALLS)) for length in lengths]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), list(map(int, sys.argv[2:])))
