"""The paths of the files in a folder."""

import os
from collections.abc import Iterator
from pathlib import Path

from vecmill.errors import InvalidCorpus


def list_paths(folder: Path) -> Iterator[str]:
    """Yield the paths of all files in a folder and its folders, in order, relative to it.

    Names that begin with a dot are left out. A link to a folder is not followed, since it may lead in a
    circle: it is yielded as a file. Raises `InvalidCorpus`.
    """
    open_folders = [_entries(folder, "")]
    while open_folders:
        path, is_folder = next(open_folders[-1], ("", False))
        if is_folder:
            open_folders.append(_entries(folder, f"{path}/"))
        elif path:
            yield path
        else:
            open_folders.pop()


def _entries(folder: Path, inside: str) -> Iterator[tuple[str, bool]]:
    """Return the paths in one folder, and whether each is a folder."""
    try:
        with os.scandir(folder / inside) as found:
            entries = [(one.name, one.is_dir(follow_symlinks=False)) for one in found]
    except OSError as error:
        raise InvalidCorpus(
            f"The folder {str(folder / inside)!r} cannot be read: {error.strerror}."
        ) from error
    return ((inside + name, is_folder) for name, is_folder in sorted(entries) if name[0] != ".")
