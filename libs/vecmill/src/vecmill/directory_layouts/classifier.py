"""Reads the labels and the activation of classifiers, as transformers' pipelines do.

Source of the rules: transformers 5.23, `configuration_utils.py`, `pipelines/text_classification.py` and
`pipelines/token_classification.py`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import check_whole_number
from vecmill.models.heads import Activation

_DEFAULT_LABELS = 2

_ACTIVATION_OF_PROBLEM = {
    "regression": Activation.IDENTITY,
    "multi_label_classification": Activation.SIGMOID,
    "single_label_classification": Activation.SOFTMAX,
}


def read_labels(config: Mapping[str, Any], path: Path) -> tuple[str, ...]:
    """Read the names of the logits, in order. Raises `CorruptModel` if they are not numbered from 0."""
    names = config.get("id2label")
    count = config.get("num_labels")
    if names is None or (count is not None and count != len(names)):
        count = check_whole_number(_DEFAULT_LABELS if count is None else count, f"{path}: num_labels")
        return tuple(f"LABEL_{index}" for index in range(count))
    try:
        named = {int(key): str(label) for key, label in dict(names).items()}
    except (TypeError, ValueError) as error:
        raise CorruptModel(f"{path}: id2label must name labels by number.") from error
    if not named or set(named) != set(range(len(named))):
        raise CorruptModel(f"{path}: id2label must number its labels from 0 without gaps.")
    return tuple(named[index] for index in range(len(named)))


def classification_activation(config: Mapping[str, Any], labels: tuple[str, ...]) -> Activation:
    """Return the activation of the text classification pipeline. Raises `UnsupportedModel`."""
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
