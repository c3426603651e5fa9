"""Files with the outputs of a reference, which one process writes and all other processes read."""

from pathlib import Path
from typing import Any

import numpy as np

from vecmill.values.embeddings import Embedding, SparseEmbedding
from vecmill.vectors.transforms import dense
from vecmill.verification.model_outputs import CheckInputs
from vecmill.verification.reference import StoredReference


def save_reference_outputs(reference: StoredReference, file: Path) -> None:
    """Write the name and the outputs of `reference`, in order, without the inputs."""
    arrays: dict[str, Any] = {"name": np.array(reference.name)}
    for index, output in enumerate(reference.outputs):
        if isinstance(output, SparseEmbedding):
            arrays[f"columns_{index}"] = output.columns
            arrays[f"values_{index}"] = output.values
        else:
            arrays[f"dense_{index}"] = dense(output)
    np.savez(file, allow_pickle=False, **arrays)


def load_reference_outputs(file: Path, inputs: CheckInputs) -> StoredReference:
    """Read the reference, with its outputs for `inputs`, from `file`."""
    with np.load(file, allow_pickle=False) as arrays:
        outputs = tuple(_read(arrays, index) for index in range(len(inputs)))
        return StoredReference(str(arrays["name"]), inputs, outputs)


def _read(arrays: Any, index: int) -> Embedding:
    if f"columns_{index}" in arrays:
        return SparseEmbedding(arrays[f"columns_{index}"], arrays[f"values_{index}"])
    found: Embedding = arrays[f"dense_{index}"]
    return found
