"""Outlines of models: their directories before the weights are downloaded.

An outline is a temporary directory with the names of all files that a download would have. Settings and
vocabularies are whole. A file with weights has its size, and of a safetensors file the header; the tensors
are a hole that takes no space on the disk. So whatever reads a model directory reads an outline too, as long
as it needs no values of tensors.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from vecmill.errors import ModelNotFound
from vecmill.models.hub import PartialModel, fetch_settings
from vecmill.models.location import ModelLocation, find_hub_name, locate_model


@dataclass(frozen=True, slots=True)
class ModelOutline:
    """A model to describe, at `location`: its directory, or an outline of it.

    `directory` is where the model is, or will be after its download. `sizes` are the bytes of its files by
    name, `missing` the names of those that have not been downloaded, and `unread` the paths of weights files
    whose tensors are not known.
    """

    location: ModelLocation
    directory: Path
    sizes: Mapping[str, int]
    missing: tuple[str, ...] = ()
    unread: frozenset[Path] = frozenset()

    @property
    def missing_bytes(self) -> int:
        """The bytes that have to be downloaded before the model is served."""
        return sum(self.sizes[name] for name in self.missing)

    def name_directory(self, text: str) -> str:
        """Return a text about the outline as a text about the model's own directory."""
        return text.replace(str(self.location.directory), str(self.directory))


@contextmanager
def outline_model(model: str | None, *, trusts_code: bool = False) -> Iterator[ModelOutline]:
    """Yield what is known of a model before its weights are downloaded. The outline lives within the block.

    `model` is what `locate_model` takes. Of a model of a hub all files but the weights are downloaded, to the
    hub client's cache. Raises the same errors as `locate_model`.
    """
    name = find_hub_name(model)
    if name is None:
        # Both directories of a pair, which are downloaded if they are of a hub.
        location = locate_model(model, trusts_code=trusts_code)
        sizes = _list_sizes(location.directory)
        if location.pictures is not None:
            directory = location.pictures.directory
            sizes |= {str(directory / file): size for file, size in _list_sizes(directory).items()}
        yield ModelOutline(location, location.directory, sizes)
        return
    found = fetch_settings(name, code=trusts_code)
    location = ModelLocation(name.repository, found.folder.resolve(), trusts_code=trusts_code)
    if not found.missing:
        yield ModelOutline(location, location.directory, _list_sizes(location.directory))
        return
    with TemporaryDirectory(prefix="vecmill-outline-") as folder:
        # Some errors name the folder, and the folder of a hub's model is named after its commit.
        outline = Path(folder).resolve() / found.folder.name
        unread = _lay_out(found, outline)
        yield ModelOutline(
            replace(location, directory=outline), location.directory, found.sizes, found.missing, unread
        )


def _lay_out(found: PartialModel, outline: Path) -> frozenset[Path]:
    """Make an outline. Return the weights files without a header, whose tensors are not known."""
    outline.mkdir()
    for name in found.sizes:
        path = outline / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name in found.missing:
            _make_hole(path, found.headers.get(name, b""), found.sizes[name])
        else:
            shutil.copyfile(found.folder / name, path)
    return frozenset(outline / name for name in found.missing if name not in found.headers)


def _make_hole(path: Path, begin: bytes, nbytes: int) -> None:
    try:
        with path.open("wb") as file:
            file.write(begin)
            os.truncate(file.fileno(), nbytes)
    except (OSError, OverflowError) as error:
        raise ModelNotFound(
            f"The hub states that {path.name} has {nbytes} bytes, for which {path.parent} has no room even "
            "without its content. Choose a folder on another disk with TMPDIR."
        ) from error


def _list_sizes(directory: Path) -> dict[str, int]:
    """Return the size of each file of a directory and of its folders, but not of theirs.

    Any directory may have been named, also one that is large, or whose files come and go.
    """
    sizes = {}
    for path in (*directory.glob("*"), *directory.glob("*/*")):
        with suppress(OSError):
            if path.is_file():
                sizes[str(path.relative_to(directory))] = path.stat().st_size
    return sizes
