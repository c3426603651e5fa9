"""vecmill and sentence-transformers over long texts, each loaded in a process of its own."""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vecmill import Embed, MillConfig, SyncMill
from vecmill.hardware.cores import available_cores
from vecmill.values.aliases import FloatArray
from vecmill.values.engine_plan import Precision

# The seconds that the texts took, and their embeddings.
Embedded = tuple[float, FloatArray]


class OurRival:
    """vecmill as a library, whose batches the caller does not choose."""

    def __init__(self, model: Path, precision: str, cache: Path) -> None:
        engine = "openvino" if precision == "bf16" else "onnx"
        config = MillConfig(engine=engine, precision=Precision(precision), cache_dir=cache)
        self._mill = SyncMill(model, config)
        self.embed(["warm"])

    def embed(self, texts: Sequence[str], batch: int = 1) -> Embedded:
        """Embed texts."""
        began = time.perf_counter()
        rows = self._mill.run(Embed(tuple(texts))).embeddings
        return time.perf_counter() - began, rows


class TheirRival:
    """sentence-transformers with torch's fused attention on all cores."""

    def __init__(self, model: Path, precision: str, cache: Path) -> None:
        import torch
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(available_cores())
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        kwargs = {"attn_implementation": "sdpa", "dtype": dtype}
        self._model = SentenceTransformer(str(model), device="cpu", model_kwargs=kwargs)
        self.embed(["warm"])

    def embed(self, texts: Sequence[str], batch: int = 1) -> Embedded:
        """Embed texts in batches of this size."""
        began = time.perf_counter()
        rows = np.asarray(self._model.encode(list(texts), batch_size=batch), np.float32)
        return time.perf_counter() - began, rows
