"""A reference's answers in a file, so that processes can be compared with one that computed them once."""

from pathlib import Path
from typing import Any

import numpy as np

from vecmill.fidelity.questions import Questions
from vecmill.fidelity.reference import KeptReference
from vecmill.types import FloatArray, Row, SparseRow


def save_reference_answers(kept: KeptReference, file: Path) -> None:
    """Write the answers, in order, and the reference's name; not the questions."""
    arrays: dict[str, Any] = {"name": np.array(kept.name)}
    for index, answer in enumerate(kept.answers):
        if isinstance(answer, SparseRow):
            arrays[f"columns_{index}"] = answer.columns
            arrays[f"values_{index}"] = answer.values
        else:
            arrays[f"rows_{index}"] = answer
    np.savez(file, allow_pickle=False, **arrays)


def load_reference_answers(file: Path, questions: Questions) -> KeptReference:
    """The reference whose answers to `questions` are in `file`."""
    with np.load(file, allow_pickle=False) as arrays:
        answers = tuple(_read(arrays, index) for index in range(len(questions)))
        return KeptReference(str(arrays["name"]), questions, answers)


def _read(arrays: Any, index: int) -> Row:
    if f"rows_{index}" in arrays:
        rows: FloatArray = arrays[f"rows_{index}"]
        return rows
    return SparseRow(arrays[f"columns_{index}"], arrays[f"values_{index}"])
