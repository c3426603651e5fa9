"""The inputs of this machine: a file of rows, a folder of texts or a folder of pictures."""

from pathlib import Path

from vecmill.bulk.picture_folder import FolderOfPictures
from vecmill.bulk.sources import Source, open_source
from vecmill.bulk.text_folder import FolderOfTexts, has_texts
from vecmill.errors import InvalidCorpus


def open_input(path: Path) -> Source:
    """Open a folder, or a file as `open_source` does. Raises the same errors.

    A folder is one of texts if most of its files are, by their names, or else one of pictures.
    """
    if path.is_dir():
        return FolderOfTexts(path) if has_texts(path) else FolderOfPictures(path)
    if not path.suffix and not path.exists():
        raise InvalidCorpus(f"There is no file and no folder {path}.")
    return open_source(path)
