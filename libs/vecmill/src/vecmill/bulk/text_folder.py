"""A folder of text files as an input: a table of their paths and their contents."""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from vecmill.bulk.folder_paths import list_paths
from vecmill.bulk.records import NOT_UTF8, Record
from vecmill.bulk.sources import Source
from vecmill.hardware.system_calls import NotRegular, open_regular

SUFFIXES = (".txt", ".md", ".markdown", ".rst")
# A longer text is a file that somebody has put there by mistake.
MOST_BYTES = 32 * 2**20


def has_texts(folder: Path) -> bool:
    """Return whether more than half of the files in a folder are of texts, by their names."""
    texts = files = 0
    for path in list_paths(folder):
        files += 1
        texts += _is_text(path)
    return 2 * texts > files


class FolderOfTexts(Source):
    """The text files in a folder and its folders, in the order of their paths, which are their ids.

    Which files these are says `list_paths`. A file with another extension is an invalid row, and so is one
    that a link outside of the folder leads to.
    """

    unit = "file"
    is_closed = True

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._folder = path
        self._within = path.resolve()

    def columns(self) -> Mapping[str, bool]:
        """Return the columns of the paths and of the texts."""
        return {"id": True, "text": True}

    def records(self, names: Sequence[str]) -> Iterator[Record]:
        """Return a row for each file, with its path, its text or both."""
        for place, path in enumerate(list_paths(self._folder), 1):
            content, problem = self._read(path)
            if problem is not None:
                yield Record(place, problem=f"({path!r}) {problem}")
            else:
                values = {"id": path, "text": content}
                yield Record(place, tuple(values[name] for name in names))

    def sha256(self) -> str:
        """Return the hexadecimal digest of all paths and contents."""
        digest = hashlib.sha256()
        for path in list_paths(self._folder):
            content, problem = self._read(path)
            part = hashlib.sha256((problem or content).encode("utf-8", "surrogateescape"))
            digest.update(os.fsencode(path) + b"\0" + part.digest())
        return digest.hexdigest()

    def _read(self, name: str) -> tuple[str, str | None]:
        """Return the text of a file, and why it is none."""
        if not _is_text(name):
            return "", f"has none of the extensions {', '.join(SUFFIXES)}"
        try:
            path = Path(os.path.realpath(self._folder / name, strict=True))
            if not path.is_relative_to(self._within):
                return "", f"leads out of {self._within}"
            with open_regular(path) as file:
                data = file.read(MOST_BYTES + 1)
        except NotRegular:
            return "", "is no file, but a folder, a pipe or a device"
        except OSError as error:
            return "", f"cannot be read: {error.strerror}"
        if len(data) > MOST_BYTES:
            return "", f"has more than {MOST_BYTES:,} bytes"
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            return "", NOT_UTF8
        return text, None if text.strip() else "is empty"


def _is_text(path: str) -> bool:
    return path.lower().endswith(SUFFIXES)
