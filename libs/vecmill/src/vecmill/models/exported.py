"""Finding graphs that another program exported: `model.onnx` and its like, with their weights.

    onnx/model.onnx             as sentence-transformers and repositories of a hub keep it
    model.onnx                  as optimum writes it
    model_optimized.onnx        the same, fused
    model_quantized.onnx        the same, in 8 bits
    model.onnx_data, ...        weights beside a graph, named after it

A graph is served where a directory has no safetensors, or where it is named itself. `ort_config.json` beside
it says how it was made, and nothing that is needed to run it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vecmill.errors import ModelNotFound
from vecmill.models.directory import find_file
from vecmill.plan import Precision

SUFFIX = ".onnx"

# The most accurate first.
_NAMES = ("model.onnx", "model_optimized.onnx", "model_quantized.onnx")
_FOLDERS = ("onnx", "")
_SETTINGS = ("config.json", "modules.json")
_SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")


@dataclass(frozen=True, slots=True)
class ExportedGraph:
    """What an exported graph takes and gives. `graphs.exported` reads it off the graph.

    `inputs` are names and numpy dtypes; `output` is the one that is read, with rows of `width` columns, one
    for each token with `has_token_rows`, else one for each text, which is finished. With `mixes_texts` the
    numbers of a text depend on the texts beside it, so that each must be run alone.
    """

    inputs: Mapping[str, str]
    output: str
    width: int
    has_token_rows: bool
    precision: Precision
    mixes_texts: bool


def find_exported_files(directory: Path, folder: str) -> tuple[Path, ...]:
    """The exported graph in `folder` of a model and its weights; none where there are safetensors.

    Raises `CorruptModel` if one leads out of the directory.
    """
    if any(find_file(directory, str(PurePosixPath(folder, name))) for name in _SAFETENSORS):
        return ()
    for place in _FOLDERS:
        for name in _NAMES:
            graph = str(PurePosixPath(folder, place, name))
            if find_file(directory, graph) is not None:
                return with_weights(directory, graph)
    return ()


def with_weights(directory: Path, graph: str) -> tuple[Path, ...]:
    """`graph`, a path in `directory`, and the files beside it that are named after it.

    Raises `CorruptModel` if one leads out of the directory.
    """
    path = directory / graph
    beside = sorted(other.name for other in path.parent.glob(f"{path.name}?*"))
    names = (graph, *(str(PurePosixPath(graph).with_name(name)) for name in beside))
    return tuple(found for name in names if (found := find_file(directory, name)) is not None)


def directory_of(graph: Path) -> Path:
    """The model directory that an exported graph belongs to. Raises `ModelNotFound`."""
    for directory in (graph.parent, graph.parent.parent):
        if any((directory / name).is_file() for name in _SETTINGS):
            return directory
    raise ModelNotFound(
        f"{graph} is an ONNX graph without a model: there is no config.json beside it or a folder above."
    )
