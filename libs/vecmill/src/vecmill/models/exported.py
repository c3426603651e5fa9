"""Finds ONNX graphs that another program exported (`model.onnx` and similar names), with their weights.

    onnx/model.onnx             the layout of sentence-transformers and of hub repositories
    model.onnx                  the layout of optimum
    model_optimized.onnx        the same graph, fused
    model_quantized.onnx        the same graph, in 8 bits
    text_model.onnx, ...        the encoder of texts of CLIP and SigLIP; that of pictures is vision_model.onnx
    model.onnx_data, ...        weights beside a graph, named after it

A graph is used if the directory has no safetensors, or if the graph itself is named. `ort_config.json` beside
the graph is not needed to run it.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vecmill.errors import ModelNotFound
from vecmill.models.directory import find_file
from vecmill.values.engine_plan import Precision

SUFFIX = ".onnx"

# The most accurate first.
_KINDS = ("", "_optimized", "_quantized")
_TOWERS = ("text_model", "vision_model")
_FOLDERS = ("onnx", "")
_SETTINGS = ("config.json", "modules.json")
_SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")


@dataclass(frozen=True, slots=True)
class ExportedGraph:
    """The inputs and the output of an exported graph. `graphs.exported` reads them from the graph.

    `inputs` are names and numpy dtypes. `output` is the name of the output to read, with `width` dimensions.
    With `is_per_token` it has a vector for each token, else a finished one for each text. With `mixes_texts`
    the output of a text depends on the other texts of the batch, so each text must be run alone.
    """

    inputs: Mapping[str, str]
    output: str
    width: int
    is_per_token: bool
    precision: Precision
    mixes_texts: bool


def find_exported_files(directory: Path, folder: str, stems: Sequence[str] = ("model",)) -> tuple[Path, ...]:
    """Return the exported graph in `folder` and its weights; nothing if there are safetensors.

    `stems` are the beginnings of its name, the preferred one first. Raises `CorruptModel` if a path leads out
    of the directory.
    """
    if any(find_file(directory, str(PurePosixPath(folder, name))) for name in _SAFETENSORS):
        return ()
    for stem, place, kind in itertools.product(stems, _FOLDERS, _KINDS):
        graph = str(PurePosixPath(folder, place, f"{stem}{kind}{SUFFIX}"))
        if find_file(directory, graph) is not None:
            return with_weights(directory, graph)
    return ()


def name_both_graphs(graph: str) -> tuple[str, str] | None:
    """Return the paths of the graphs of texts and of pictures, of which `graph` is one, or `None`."""
    path = PurePosixPath(graph)
    for stem in _TOWERS:
        if path.name.startswith(stem):
            of_texts, of_pictures = (str(path.with_name(other + path.name[len(stem) :])) for other in _TOWERS)
            return of_texts, of_pictures
    return None


def list_other_graphs(directory: Path, folder: str) -> list[str]:
    """Return the paths of graphs of other names, such as model_q4.onnx, where `find_exported_files` looks."""
    places = dict.fromkeys(PurePosixPath(folder, place) for place in _FOLDERS)
    found = (path for place in places for path in sorted((directory / place).glob(f"*{SUFFIX}")))
    return [path.relative_to(directory).as_posix() for path in found if path.is_file()]


def with_weights(directory: Path, graph: str) -> tuple[Path, ...]:
    """Return `graph`, a path in `directory`, and the files beside it that are named after it.

    Raises `CorruptModel` if a path leads out of the directory.
    """
    path = directory / graph
    beside = sorted(other.name for other in path.parent.glob(f"{path.name}?*"))
    names = (graph, *(str(PurePosixPath(graph).with_name(name)) for name in beside))
    return tuple(found for name in names if (found := find_file(directory, name)) is not None)


def directory_of(graph: Path) -> Path:
    """Return the model directory of an exported graph. Raises `ModelNotFound`."""
    for directory in (graph.parent, graph.parent.parent):
        if any((directory / name).is_file() for name in _SETTINGS):
            return directory
    raise ModelNotFound(
        f"{graph} is an ONNX graph without a model: neither its folder nor the one above has a config.json."
    )
