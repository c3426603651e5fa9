"""Embed long texts in a process of its own, with vecmill or with sentence-transformers, as the caller asks.

`long_text_rival.py WHO MODEL PRECISION CACHE`. Each line of the input is a JSON object with `texts` and the
size of a `batch`, each line of the output one with `seconds` and `vectors`. An empty line comes when the
model is loaded.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from vecmill.hardware.cores import available_cores
from vecmill.values.aliases import FloatArray
from vecmill.values.engine_plan import Precision

Embedder = Callable[[Sequence[str], int], FloatArray]


def load_vecmill(model: Path, precision: str, cache: Path) -> Embedder:
    """vecmill as a library, whose batches the caller does not choose."""
    from vecmill import Embed, MillConfig, SyncMill

    engine = "openvino" if precision == "bf16" else "onnx"
    mill = SyncMill(model, MillConfig(engine=engine, precision=Precision(precision), cache_dir=cache))

    def embed(texts: Sequence[str], batch: int) -> FloatArray:
        return mill.run(Embed(tuple(texts))).embeddings

    return embed


def load_reference(model: Path, precision: str, cache: Path) -> Embedder:
    """sentence-transformers with torch's fused attention on all cores."""
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(available_cores())
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    kwargs = {"attn_implementation": "sdpa", "dtype": dtype}
    reference = SentenceTransformer(str(model), device="cpu", model_kwargs=kwargs)

    def embed(texts: Sequence[str], batch: int) -> FloatArray:
        return np.asarray(reference.encode(list(texts), batch_size=batch), np.float32)

    return embed


LOADERS = {"vecmill": load_vecmill, "reference": load_reference}


def main(who: str, model: Path, precision: str, cache: Path) -> None:
    """Load the model, and answer until the input ends."""
    embed = LOADERS[who](model, precision, cache)
    embed(["warm"], 1)
    print(flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        began = time.perf_counter()
        vectors = embed(asked["texts"], asked["batch"])
        took_s = time.perf_counter() - began
        print(json.dumps({"seconds": took_s, "vectors": vectors.tolist()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
