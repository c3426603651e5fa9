"""Classifiers: what transformers' pipelines read of a model's labels.

Source of the rules: transformers 5.23, `configuration_utils.py`, `pipelines/text_classification.py` and
`pipelines/token_classification.py`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.heads import Activation

_DEFAULT_LABELS = 2

_ACTIVATION_OF_PROBLEM = {
    "regression": Activation.IDENTITY,
    "multi_label_classification": Activation.SIGMOID,
    "single_label_classification": Activation.SOFTMAX,
}


def read_labels(config: Mapping[str, Any], where: Path) -> tuple[str, ...]:
    """The names of the logits, in order. Raises `CorruptModel` if they are not numbered from 0."""
    written = config.get("id2label")
    count = config.get("num_labels")
    if written is None or (count is not None and count != len(written)):
        count = _DEFAULT_LABELS if count is None else count
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise CorruptModel(f"{where}: num_labels must be a whole number of at least 1.")
        return tuple(f"LABEL_{index}" for index in range(count))
    try:
        named = {int(key): str(label) for key, label in dict(written).items()}
    except (TypeError, ValueError) as error:
        raise CorruptModel(f"{where}: id2label must name labels by number.") from error
    if not named or set(named) != set(range(len(named))):
        raise CorruptModel(f"{where}: id2label must number its labels from 0 without gaps.")
    return tuple(named[index] for index in range(len(named)))


def classification_activation(config: Mapping[str, Any], labels: tuple[str, ...]) -> Activation:
    """What the text classification pipeline makes scores with. Raises `UnsupportedModel`."""
    problem = config.get("problem_type")
    if problem is not None and problem not in _ACTIVATION_OF_PROBLEM:
        raise UnsupportedModel(
            f"config.json: problem_type {problem!r} is not supported; supported: "
            f"{', '.join(_ACTIVATION_OF_PROBLEM)}."
        )
    if problem == "regression":
        return Activation.IDENTITY
    if len(labels) == 1:
        return Activation.SIGMOID
    return Activation.SOFTMAX if problem is None else _ACTIVATION_OF_PROBLEM[problem]
