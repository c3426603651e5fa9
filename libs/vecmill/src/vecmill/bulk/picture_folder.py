"""A folder of pictures as an input: a table with one column, of the paths of its files."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from vecmill.bulk.folder_paths import list_paths
from vecmill.bulk.picture_inputs import LocalPictures, PictureFolder
from vecmill.bulk.records import Record
from vecmill.bulk.sources import Source


class FolderOfPictures(Source):
    """The files in a folder and its folders, in the order of their paths, which are their ids.

    Which files these are says `list_paths`.
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
        return (Record(place, (path,) * len(names)) for place, path in enumerate(list_paths(self._folder), 1))

    def sha256(self) -> str:
        """Return nothing: the rows name all that counts, see `FilesDigest`."""
        return ""

    def find_pictures(self, folder: Path | None) -> PictureFolder:
        """Return this folder. Its links may lead to files anywhere in `folder`."""
        return LocalPictures.of(self._folder, folder)
