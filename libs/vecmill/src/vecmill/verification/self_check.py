"""The self-check of a loaded model at its start, without torch.

The engine must compute texts of the model's tokenizer, and its outputs must have the shape that the model's
settings require: exported graphs and classes of transformers need not. The embeddings must be finite, have
unit length if the model normalises, and be equal for a text alone and in a batch, on any number of cores. The
embeddings of the model that is packaged with vecmill must also equal the stored embeddings of
sentence-transformers. If they differ, the processor, the runtime or a file is faulty.

Other models may answer requests meanwhile, so the calls take their cores from the budget.
"""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from vecmill.architectures.towers import PictureTowerConfig, cut_patches
from vecmill.engines.base import WARM_UP_TOKENS, Engine
from vecmill.errors import InferenceFailed, InvalidRequest, SelfCheckFailed, UnsupportedModel, one_line
from vecmill.hardware.budget import CoreBudget
from vecmill.models import EMBEDDED_MODEL, ModelDescription
from vecmill.models.encoder_config import EncoderConfig
from vecmill.requests import Truncation
from vecmill.tokenization.text_padding import TextPadding
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import Embeddings, OutputShape
from vecmill.values.engine_plan import CostModel

# The lengths differ, so that the batch has padding.
TEXTS = (
    "A cat sleeps on the warm roof.",
    "Vectors.",
    "What a text means is where it lies: near to what says the same in other words, far from all else.",
    "東京 naïve café 🦊",
)

# The largest difference between two computations of an embedding, by precision: rounding errors only.
TOLERANCES = {"fp32": 1e-4}
OTHER_TOLERANCE = 0.05

STORED_EMBEDDINGS = "all-MiniLM-L6-v2.json"


@dataclass(frozen=True, slots=True)
class Samples:
    """Inputs of a model: those that are checked, and those that its warm-up computes (`Engine.warm_up`)."""

    checked: Sequence[TokenSequence]
    warm_up: Sequence[TokenSequence]

    @classmethod
    def of_texts(cls, tokenizer: Tokenizer, description: ModelDescription) -> "Samples":
        """Return the token sequences of `TEXTS`, padded if those of the model are.

        Raises `UnsupportedModel` if the tokenizer refuses a text: a word may have no embedding.
        """
        padding = TextPadding.of(description, tokenizer.library)
        text = " ".join(TEXTS * 4)
        lengths = (Truncation(max_tokens=count) for count in WARM_UP_TOKENS)
        try:
            checked = tokenizer.encode(TEXTS)
            warm_up = [tokenizer.encode([text], truncation=each)[0] for each in lengths]
        except InvalidRequest as error:
            raise UnsupportedModel(
                f"{description.tokenizer_file}: a plain English text, of the self-check, is refused: "
                f"{error.message.partition('. ')[0]}."
            ) from error
        return cls(checked, warm_up) if padding is None else cls(padding.pad(checked), padding.pad(warm_up))

    @classmethod
    def of_pictures(cls, encoder: EncoderConfig) -> "Samples":
        """Return random pixels, which are the same at every start."""
        assert isinstance(encoder, PictureTowerConfig)
        numbers = np.random.default_rng(0)
        shape = (encoder.image_size, encoder.image_size, 3)
        pixels = [numbers.integers(0, 256, shape, np.uint8) for _ in range(2)]
        pictures = [cut_patches(each, encoder) for each in pixels]
        return cls(pictures, pictures)


def start_engine(
    description: ModelDescription,
    engine: Engine,
    samples: Samples,
    budget: CoreBudget,
    cost: CostModel | None = None,
) -> CostModel:
    """Check `engine`, warm it up, and return the cost of its calls, or `cost` if it is known already.

    With a known cost an engine on the processor is not warmed up. On a device it is: its first calls choose
    kernels, and its warm-up starts the captures.

    Raises the errors of `check_engine`.
    """
    check_engine(description, engine, samples, budget)
    if cost is not None and engine.info.parallel_calls is None:
        return cost
    with budget.hold(engine.info.lane_widths[0]):  # the width of the calls that are timed
        return engine.warm_up(samples.warm_up)


def check_engine(description: ModelDescription, engine: Engine, samples: Samples, budget: CoreBudget) -> None:
    """Raise `SelfCheckFailed` if `engine` computes wrong embeddings.

    Raises `UnsupportedModel` if it fails, or if its outputs differ from the model's settings in their shape.
    """
    if engine.info.precision == "exact":
        return  # hashes of token ids instead of embeddings
    sequences = samples.checked
    tolerance = TOLERANCES.get(engine.info.precision, OTHER_TOLERANCE)
    narrow, *wider = engine.info.lane_widths
    found = {}
    for width in engine.info.lane_widths:
        with budget.hold(width):
            found[width] = _check_width(description, engine, sequences, width, tolerance)
    for width in wider:
        for index in range(len(sequences)):
            one, other = (_densify(found[each], index, engine.info.dim) for each in (width, narrow))
            _check_same(one, other, tolerance, f"on {narrow} and on {width} cores")
    if description.name == EMBEDDED_MODEL:
        stored = load_stored_embeddings()
        for together in found.values():
            _check_same(together.values, stored, tolerance, "on this machine and in the reference")


def _check_width(
    description: ModelDescription,
    engine: Engine,
    sequences: Sequence[TokenSequence],
    width: int,
    tolerance: float,
) -> Embeddings:
    """Check the calls on `width` cores, and return the embeddings of `sequences` in one batch."""
    together = _run(description, engine, sequences, width)
    if not np.isfinite(together.values).all():
        raise SelfCheckFailed("The model computes values that are not finite. Its weights may be damaged.")
    if description.normalize:
        _check_length(together, tolerance)
    for index, sequence in enumerate(sequences):
        alone = _run(description, engine, [sequence], width)
        one, other = _densify(together, index, engine.info.dim), _densify(alone, 0, engine.info.dim)
        _check_same(one, other, tolerance, "alone and in a batch")
    return together


def _run(
    description: ModelDescription, engine: Engine, sequences: Sequence[TokenSequence], width: int
) -> Embeddings:
    """Compute the embeddings of `sequences`. Raises `UnsupportedModel`."""
    batch, info = Batch.of(sequences), engine.info
    try:
        found = engine.run(batch, width=width)
    except InferenceFailed as error:
        cause = error.__cause__ or error
        raise UnsupportedModel(
            f"{description.directory}: the {info.name} engine failed on a small text of the self-check: "
            f"{type(cause).__name__}: {one_line(cause)}"
        ) from error
    if info.output_shape is OutputShape.SPARSE:
        return found
    expected = (int(batch.row_counts(info.output_shape).sum()), info.dim)
    if found.values.shape != expected or found.values.dtype != np.float32:
        raise UnsupportedModel(
            f"{description.directory}: the {info.name} engine returns outputs of shape "
            f"{list(found.values.shape)} and type {found.values.dtype}. The model's settings require "
            f"{list(expected)} and float32."
        )
    return found


def load_stored_embeddings() -> FloatArray:
    """Load sentence-transformers' embeddings of `TEXTS` by the embedded model: (4, 384), float32."""
    stored = json.loads(files("vecmill.verification").joinpath(STORED_EMBEDDINGS).read_text(encoding="utf-8"))
    return np.stack([np.frombuffer(base64.b64decode(stored[text]), "<f4") for text in TEXTS])


def _densify(embeddings: Embeddings, index: int, dim: int) -> FloatArray:
    """Return the embedding of text `index` as a dense array: sparse weights near 0 may be missing."""
    if embeddings.columns is None:
        return embeddings.of_text(index)
    values = np.zeros(dim, np.float32)
    columns = embeddings.columns[embeddings.offsets[index] : embeddings.offsets[index + 1]]
    values[columns] = embeddings.of_text(index)
    return values


def _check_length(embeddings: Embeddings, tolerance: float) -> None:
    lengths = np.linalg.norm(embeddings.values, axis=-1)
    if np.abs(lengths - 1).max() > max(tolerance, 1e-5):
        raise SelfCheckFailed("The model normalises, but its embeddings do not have unit length.")


def _check_same(one: FloatArray, other: FloatArray, tolerance: float, where: str) -> None:
    if one.shape != other.shape:
        raise SelfCheckFailed(f"The model gives embeddings of different shapes {where}.")
    scale = max(1.0, float(np.abs(other).max()))
    difference = float(np.abs(one - other).max()) / scale
    if difference > tolerance:
        raise SelfCheckFailed(
            f"The model gives different embeddings {where}: they differ by {difference:.1e}, and the "
            f"tolerance is {tolerance:.0e}. Remove the prepared model from the cache. If this does not help, "
            "try another engine."
        )
