"""Reads the labels and the activation of classifiers, as transformers' pipelines do.

Source of the rules: transformers 5.23, `configuration_utils.py`, `pipelines/text_classification.py` and
`pipelines/token_classification.py`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vecmill.errors import CorruptModel
from vecmill.models.config_fields import (
    MOST_LABELS,
    check_text,
    check_whole_number,
    read_choice,
    read_mapping,
)
from vecmill.models.heads import Activation

_DEFAULT_LABELS = 2

_ACTIVATION_OF_PROBLEM = {
    "regression": Activation.IDENTITY,
    "multi_label_classification": Activation.SIGMOID,
    "single_label_classification": Activation.SOFTMAX,
}


def read_labels(config: Mapping[str, Any], path: Path) -> tuple[str, ...]:
    """Read the names of the logits, in order. Raises `CorruptModel` if they are not numbered from 0."""
    names = None if config.get("id2label") is None else read_mapping(config, "id2label", file=path)
    count = config.get("num_labels")
    if count is not None:
        count = check_whole_number(count, f"{path}: num_labels", most=MOST_LABELS)
    if names is None or count not in (None, len(names)):
        return tuple(f"LABEL_{index}" for index in range(count or _DEFAULT_LABELS))
    try:
        named = {int(key): _label(value, f"{path}: id2label.{key}") for key, value in names.items()}
    except ValueError as error:
        raise CorruptModel(f"{path}: id2label must name labels by number.") from error
    if not named or set(named) != set(range(len(named))):
        raise CorruptModel(f"{path}: id2label must number its labels from 0 without gaps.")
    return tuple(named[index] for index in range(len(named)))


def _label(value: object, name: str) -> str:
    """Return the name of a label, which may be written as a number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else check_text(value, name)


def classification_activation(config: Mapping[str, Any], labels: tuple[str, ...]) -> Activation:
    """Return the activation of the text classification pipeline. Raises `UnsupportedModel`."""
    problem = read_choice(config, "problem_type", _ACTIVATION_OF_PROBLEM)
    if problem == "regression":
        return Activation.IDENTITY
    if len(labels) == 1:
        return Activation.SIGMOID
    return Activation.SOFTMAX if problem is None else _ACTIVATION_OF_PROBLEM[problem]
