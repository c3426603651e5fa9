"""The rows to compare with: sentence-transformers' where it is installed, else our own fp32 engine's."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from vecmill.engines import load_engine
from vecmill.models import ModelDescription
from vecmill.tokens import Tokenizer
from vecmill.types import Batch, FloatArray


@dataclass(frozen=True, slots=True)
class Reference:
    """Something that embeds: `embed` takes texts and gives (texts, dim) float32."""

    name: str
    embed: Callable[[Sequence[str]], FloatArray]


def load_reference(description: ModelDescription, cache_dir: Path) -> Reference:
    """The best reference that this machine has for a model that embeds. Blocks while it loads."""
    if find_spec("sentence_transformers") is not None:
        return _load_oracle(description)
    return _load_own(description, cache_dir)


def _load_oracle(description: ModelDescription) -> Reference:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs to heed
        import sentence_transformers

        model = sentence_transformers.SentenceTransformer(str(description.directory), device="cpu").float()

    def embed(texts: Sequence[str]) -> FloatArray:
        return np.asarray(model.encode(list(texts), convert_to_numpy=True), np.float32)

    return Reference(f"sentence-transformers {sentence_transformers.__version__}", embed)


def _load_own(description: ModelDescription, cache_dir: Path) -> Reference:
    engine = load_engine("onnx", description, cores=1, cache_dir=cache_dir)
    tokenizer = Tokenizer.load(description)

    def embed(texts: Sequence[str]) -> FloatArray:
        sequences = tokenizer.encode(texts, prompt=description.default_prompt)
        return np.concatenate([engine.run(Batch.of([one]), width=1).values for one in sequences])

    return Reference("vecmill's own fp32 ONNX engine, each text alone", embed)
