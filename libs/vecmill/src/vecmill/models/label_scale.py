"""How the likeness of the embeddings of an input and a label becomes the score of the label.

CLIP and SigLIP have the numbers among their weights, which they learned with the encoders: `logit_scale`, the
logarithm of the factor, and SigLIP's `logit_bias`. CLIP's labels compete for one sum, and SigLIP judges each
alone. Source: transformers 5, `models/clip`, `models/siglip` and `pipelines/zero_shot_image_classification`.
"""

import math
from dataclasses import dataclass

from vecmill.errors import CorruptModel
from vecmill.models.description import ModelDescription
from vecmill.models.heads import Activation
from vecmill.models.model_weights import open_weights
from vecmill.models.weights import Weights

_SCALE, _BIAS = "logit_scale", "logit_bias"
# Of the logarithm. Published factors are around 100, and their logarithms below 5.
MOST = 20


@dataclass(frozen=True, slots=True)
class LabelScale:
    """The logit of a label is `factor` times the cosine, plus `bias`; `activation` makes scores of logits."""

    factor: float
    bias: float = 0.0
    activation: Activation = Activation.SOFTMAX


# Of models of texts alone, which keep no factor: that with which sentence-transformers trains by default
# (`MultipleNegativesRankingLoss`).
TEXT_SCALE = LabelScale(20.0)


def read_label_scale(description: ModelDescription) -> LabelScale | None:
    """Read the numbers of a model of texts and pictures; `None` if its files have none.

    Raises the same errors as `Weights.open`, and `CorruptModel` for numbers that are no scale.
    """
    if description.exported_graph is not None:
        return None
    weights = open_weights(description)
    if not weights.holds(_SCALE):
        return None
    has_bias = weights.holds(_BIAS)
    logarithm, bias = _read_number(weights, _SCALE), _read_number(weights, _BIAS) if has_bias else 0.0
    if not (-MOST <= logarithm <= MOST and math.isfinite(bias)):
        raise CorruptModel(
            f"{description.weights_files[0]}: {_SCALE} is {logarithm} and {_BIAS} {bias}; supported are "
            f"logarithms of at most {MOST}, and finite biases."
        )
    return LabelScale(math.exp(logarithm), bias, Activation.SIGMOID if has_bias else Activation.SOFTMAX)


def _read_number(weights: Weights, name: str) -> float:
    shape = weights.shape(name)
    return float(weights.tensor(name, (1,) if shape == (1,) else ()).read().reshape(()))
