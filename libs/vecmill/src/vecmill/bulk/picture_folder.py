"""A folder of pictures as an input: a table with one column, of the paths of its files."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from vecmill.bulk.picture_inputs import LocalPictures, PictureFolder
from vecmill.bulk.records import Record
from vecmill.bulk.sources import Source, open_source
from vecmill.errors import InvalidCorpus


class FolderOfPictures(Source):
    """The files in a folder and its folders, in the order of their paths, which are their ids.

    Names that begin with a dot are left out. A link to a folder is not followed, since it may lead in a
    circle: it is a row that is no file.
    """

    unit = "file"
    is_closed = True
    has_pictures = True

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._folder = path

    def columns(self) -> Mapping[str, bool]:
        """Return the only column, of paths."""
        return {"id": True}

    def records(self, names: Sequence[str]) -> Iterator[Record]:
        """Return a row for each file, with its path for each of `names`."""
        return (Record(place, (path,) * len(names)) for place, path in enumerate(self._paths(), 1))

    def sha256(self) -> str:
        """Return nothing: the rows name all that counts, see `FilesDigest`."""
        return ""

    def find_pictures(self, folder: Path | None) -> PictureFolder:
        """Return this folder. Its links may lead to files anywhere in `folder`."""
        return LocalPictures.of(self._folder, folder)

    def _paths(self) -> Iterator[str]:
        """Yield the paths of all files, relative to the folder."""
        open_folders = [self._entries("")]
        while open_folders:
            path, is_folder = next(open_folders[-1], ("", False))
            if is_folder:
                open_folders.append(self._entries(f"{path}/"))
            elif path:
                yield path
            else:
                open_folders.pop()

    def _entries(self, inside: str) -> Iterator[tuple[str, bool]]:
        """Return the paths in one folder, and whether each is a folder."""
        try:
            with os.scandir(self._folder / inside) as found:
                entries = [(one.name, one.is_dir(follow_symlinks=False)) for one in found]
        except OSError as error:
            raise InvalidCorpus(
                f"The folder {str(self._folder / inside)!r} cannot be read: {error.strerror}."
            ) from error
        return ((inside + name, is_folder) for name, is_folder in sorted(entries) if name[0] != ".")


def open_input(path: Path) -> Source:
    """Open a folder of pictures, or a file as `open_source` does. Raises the same errors."""
    if not path.suffix and not path.exists():
        raise InvalidCorpus(f"There is no file and no folder {path}.")
    return FolderOfPictures(path) if path.is_dir() else open_source(path)
