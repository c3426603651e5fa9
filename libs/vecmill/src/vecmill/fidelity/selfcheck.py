"""What a served model proves of itself at its start, without torch.

Its rows are finite, of unit length where the model normalises, and the same for a text alone and
in a batch. The embedded model's rows must also be the stored ones: those are sentence-transformers',
and a processor, runtime or file on which they come out otherwise is not to be trusted.
"""

import base64
import json
from importlib.resources import files

import numpy as np

from vecmill.engines.base import Engine
from vecmill.errors import SelfCheckFailed
from vecmill.models import EMBEDDED_MODEL, ModelDescription
from vecmill.tokens import Tokenizer
from vecmill.types import Batch, FloatArray, Rows

# Of different lengths, so that the batch has padding.
TEXTS = (
    "A cat sleeps on the warm roof.",
    "Vectors.",
    "What a text means is where it lies: near to what says the same in other words, far from all else.",
    "東京 naïve café 🦊",
)

# How far a row may be from the same row elsewhere, by precision: rounding, and nothing more.
TOLERANCES = {"fp32": 1e-4}
OTHER_TOLERANCE = 0.05

STORED_ROWS = "all-MiniLM-L6-v2.json"


def check_engine(description: ModelDescription, engine: Engine, tokenizer: Tokenizer) -> None:
    """Raise `SelfCheckFailed` unless `engine` gives rows that can be right."""
    if engine.info.precision == "exact":
        return  # hashes of token ids: nothing is computed, so nothing is to be proved
    sequences = tokenizer.encode(TEXTS)
    tolerance = TOLERANCES.get(engine.info.precision, OTHER_TOLERANCE)
    for width in engine.info.lane_widths:
        together = engine.run(Batch.of(sequences), width=width)
        _check_finite(together)
        if description.normalize:
            _check_length(together, tolerance)
        for index, sequence in enumerate(sequences):
            alone = engine.run(Batch.of([sequence]), width=width)
            one, other = _whole(together, index, engine.info.dim), _whole(alone, 0, engine.info.dim)
            _check_same(one, other, tolerance, "alone and in a batch")
        if description.name == EMBEDDED_MODEL:
            _check_same(together.values, load_stored_rows(), tolerance, "here and in the reference")


def load_stored_rows() -> FloatArray:
    """sentence-transformers' rows of `TEXTS` for the embedded model: (texts, 384), float32."""
    stored = json.loads(files("vecmill.fidelity").joinpath(STORED_ROWS).read_text(encoding="utf-8"))
    return np.stack([np.frombuffer(base64.b64decode(stored[text]), "<f4") for text in TEXTS])


def _whole(rows: Rows, index: int, dim: int) -> FloatArray:
    """What text `index` gets, a sparse row with its zeros: one that is nearly 0 may be there or not."""
    if rows.columns is None:
        return rows.row(index)
    whole = np.zeros(dim, np.float32)
    whole[rows.columns[rows.offsets[index] : rows.offsets[index + 1]]] = rows.row(index)
    return whole


def _check_finite(rows: Rows) -> None:
    if not np.isfinite(rows.values).all():
        raise SelfCheckFailed("The model computes rows that are not finite. Its weights may be damaged.")


def _check_length(rows: Rows, tolerance: float) -> None:
    lengths = np.linalg.norm(rows.values, axis=-1)
    if np.abs(lengths - 1).max() > max(tolerance, 1e-5):
        raise SelfCheckFailed("The model normalises, but its rows do not have unit length.")


def _check_same(one: FloatArray, other: FloatArray, tolerance: float, where: str) -> None:
    if one.shape != other.shape:
        raise SelfCheckFailed(f"The model gives rows of different shapes {where}.")
    scale = max(1.0, float(np.abs(other).max()))
    difference = float(np.abs(one - other).max()) / scale
    if difference > tolerance:
        raise SelfCheckFailed(
            f"The model gives different rows {where}: off by {difference:.1e}, allowed {tolerance:.0e}. "
            "Remove the prepared model from the cache, and try another engine if that does not help."
        )
