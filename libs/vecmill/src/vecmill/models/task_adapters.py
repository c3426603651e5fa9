"""Opens the weights of a model with the LoRA adapters of its tasks, beside each other and not merged.

The matrices of all adapters are read by the names of `name_matrix`. Those of the part B are multiplied by the
scaling of the adapter (`models.adapters`) when they are read.
"""

import re
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.adapters import Adapter, list_tensors
from vecmill.models.tensor_views import TensorView, ViewedFile
from vecmill.models.weights import Weights, open_weights_file
from vecmill.values.aliases import FloatArray
from vecmill.values.messages import show_name

_MATRIX = re.compile(r"(?P<module>.+)\.lora_(?P<part>[AB])\.weight")
_PREFIX = "model."  # of the encoder in a language model
MOST_RANK = 1024  # far above published adapters; the matrices of all tasks are multiplied at once


def name_matrix(module: str, part: str, task: str) -> str:
    """Return the name of the matrix "A" or "B" of a module in the adapter of a task."""
    return f"{module}.lora_{part}.{task}"


def _scale(factor: float, values: Any, _rows: slice) -> FloatArray:
    import ml_dtypes  # noqa: F401  # registers bfloat16 with numpy

    scaled: FloatArray = np.asarray(values, np.float32) * np.float32(factor)
    return scaled


def open_beside(
    adapters: Mapping[str, Adapter],
    *paths: Path,
    modules: Collection[str],
    asked_by: Mapping[str, Any] = MappingProxyType({}),
) -> Weights:
    """Open the weights files of a model, and the matrices of its `adapters` by task.

    `modules` are the linear modules that they may change. Raises the same errors as `Weights.open`,
    `UnsupportedModel` if an adapter changes anything else, and `CorruptModel` if a matrix lacks its
    counterpart or has another rank.
    """
    files: dict[Path, Any] = {path: open_weights_file(path) for path in paths}
    for task, adapter in adapters.items():
        file = open_weights_file(adapter.weights_file)
        files[adapter.weights_file] = ViewedFile(_list_matrices(task, adapter, file, modules))
    return Weights(files, asked_by)


def _list_matrices(task: str, adapter: Adapter, file: Any, modules: Collection[str]) -> dict[str, TensorView]:
    path = adapter.weights_file
    found: dict[str, TensorView] = {}
    for name, stored in list_tensors(file, path).items():
        parts = _MATRIX.fullmatch(name)
        module = "" if parts is None else parts["module"].removeprefix(_PREFIX)
        if parts is None or module not in modules:
            raise UnsupportedModel(
                f"{path}: the tensor {show_name(name)!r} is not supported. Adapters of tasks may change the "
                "linear layers of attention and of the gated units alone."
            )
        matrix, rank = TensorView.of(file, stored), adapter.rank_of(parts["module"])
        shape = matrix.shape
        if rank > MOST_RANK:
            raise UnsupportedModel(
                f"{path}: {show_name(name)!r} has the rank {rank}; at most {MOST_RANK} is supported."
            )
        if len(shape) != 2 or shape[parts["part"] == "B"] != rank:
            raise CorruptModel(
                f"{path}: the tensor {show_name(name)!r} has the shape {list(shape)}; by adapter_config.json "
                f"its rank is {rank}."
            )
        factor = adapter.scaling_of(parts["module"]) if parts["part"] == "B" else 1.0
        # The matrices of all tasks are joined when they are read.
        found[name_matrix(module, parts["part"], task)] = matrix.changed(partial(_scale, factor))
    for module in modules:
        held = [name_matrix(module, part, task) in found for part in "AB"]
        if held[0] != held[1]:
            raise CorruptModel(f"{path} has only one of the two matrices of the module {module}.")
    return found
