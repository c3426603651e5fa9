"""The pictures of an input: bytes in its rows, or files that its rows name.

A row of a file of texts names a picture by its path, relative to the folder of that file. No path leaves this
folder, by `..` or by a link, unless another folder is named: rows may come from strangers, and with a server
the content of the files is sent away. A file is opened in the scan, to see that it is a picture, and read
when it is embedded, so that few are in memory.
"""

import asyncio
import base64
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from vecmill.bulk.records import NO_CHARACTER, Record, is_writable
from vecmill.errors import InvalidCorpus
from vecmill.hardware.system_calls import NotRegular, open_regular
from vecmill.pictures.picture_formats import FORMATS, HEAD_BYTES, find_format
from vecmill.pictures.picture_limits import PictureLimits
from vecmill.values.picture import Picture

# Of files that are read at once: with a server, each byte is in memory about five times.
ROOM_BYTES = 32 * 2**20
# What a picture counts for at least, so that a bounded number of small ones waits.
_LEAST_BYTES = 64 * 2**10

_SHOWN_CHARACTERS = 200
_LIMITS = PictureLimits()
_MEDIA_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "WebP": "image/webp", "GIF": "image/gif"}

# A picture of one white pixel.
PROBE_PICTURE = Picture(
    base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4//8/AAX+Av4zEpUUAAAAAElFTkSuQmCC"
    )
)


@dataclass(frozen=True, slots=True)
class PictureFile:
    """A file that a row names as `name`, as it was when the row was read. `len` is its size in bytes.

    `changed_ns` is the time of its last change. `open` opens the same file again for reading bytes, and
    raises `OSError` if it is another one.
    """

    name: str
    size: int
    changed_ns: int
    open: Callable[[], Any] = field(compare=False, repr=False)

    def __len__(self) -> int:
        return self.size

    def read(self) -> Picture:
        """Read the file. Raises `InvalidCorpus` if it has changed or vanished since its row was read."""
        reason = "has changed since the start"
        try:
            with self.open() as file:
                data = file.read(self.size + 1)
        except OSError as error:
            reason, data = f"cannot be read any more: {error.strerror or error}", b""
        if len(data) != self.size:
            raise InvalidCorpus(f"The picture {self.name!r} {reason}.")
        return Picture(data)


# What is embedded: a text, a picture, or the file of one.
EmbedInput = str | Picture | PictureFile


class PictureFolder(Protocol):
    """Where the files are that rows name."""

    def find(self, name: str) -> PictureFile | str:
        """Return the file of a path in a row, or why it is none, which continues "line 3 ('a.png')"."""
        ...


@dataclass(frozen=True, slots=True)
class LocalPictures:
    """A folder of this machine, which paths are relative to. No path leads out of `within`, which is real."""

    folder: Path
    within: Path

    @classmethod
    def of(cls, folder: Path, within: Path | None = None) -> "LocalPictures":
        """Return the folder with real paths."""
        return cls(folder, (within or folder).resolve())

    def find(self, name: str) -> PictureFile | str:
        """Return the file of a path, or why it is none; see `PictureFolder.find`."""
        if "://" in name or name.startswith("data:"):
            return "is a URL: pictures are read from files"
        try:
            path = Path(os.path.realpath(self.folder / name, strict=True))
            if not path.is_relative_to(self.within):
                return f"leads out of {self.within}: --picture-folder names a folder that has all pictures"
            with open_regular(path) as file:
                found = os.fstat(file.fileno())
                problem = find_problem_of(found.st_size, file.read(HEAD_BYTES))
        except NotRegular:
            return "is no file, but a folder, a pipe or a device"
        except OSError as error:
            return f"cannot be read: {error.strerror}"
        except ValueError:  # a NUL character
            return "is no path"
        size, changed_ns = found.st_size, found.st_mtime_ns
        return problem or PictureFile(name, size, changed_ns, partial(_reopen, path, size, changed_ns))


def _reopen(path: Path, size: int, changed_ns: int) -> BinaryIO:
    file = open_regular(path)
    found = os.fstat(file.fileno())
    if (found.st_size, found.st_mtime_ns) != (size, changed_ns):
        file.close()
        raise OSError("it has changed since the start")
    return file


def find_problem_of(size: int, head: bytes) -> str | None:
    """Return why a file of this size, with these first bytes, is not read; `None` if it may be a picture."""
    if not size:
        return "is empty"
    if size > _LIMITS.max_bytes:
        return f"has {size:,} bytes: at most {_LIMITS.max_bytes:,} are accepted"
    return None if find_format(head) else f"is no {FORMATS} file"


def read_cell(record: Record, folder: PictureFolder) -> Record:
    """Return a row with its picture as the first value, or with a problem, as it may have already.

    The first value is a path, bytes, or both, as in the column of a data set of Hugging Face:
    `{"bytes": ..., "path": ...}`, where bytes go first.
    """
    if record.problem is not None:
        return record
    cell = record.values[0]
    if isinstance(cell, dict):
        cell = next((cell[key] for key in ("bytes", "path") if cell.get(key) is not None), None)
    found: PictureFile | Picture | str
    if isinstance(cell, str):
        found = folder.find(cell) if is_writable(cell) else f"has {NO_CHARACTER}"
        found = f"({cell[:_SHOWN_CHARACTERS]!r}) {found}" if isinstance(found, str) else found
    elif isinstance(cell, bytes):
        problem = find_problem_of(len(cell), cell[:HEAD_BYTES])
        found = Picture(cell) if problem is None else f"has a picture that {problem}"
    else:
        found = (
            "has no picture" if cell is None else "has neither a path nor bytes where its picture should be"
        )
    if isinstance(found, str):
        return Record(record.place, problem=found)
    return Record(record.place, (found, *record.values[1:]))


class FilesDigest:
    """The digest of the paths, sizes and times of change of the files that rows name; `None` without any.

    The content is left out: to read a hundred thousand pictures once more takes as long as to embed them.
    """

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._is_empty = True

    def add(self, record: Record) -> None:
        """Add the file of a valid row, if it names one."""
        value = record.values[0]
        if isinstance(value, PictureFile):
            self._is_empty = False
            self._digest.update(b"%d %d %b\0" % (value.size, value.changed_ns, os.fsencode(value.name)))

    def result(self) -> str | None:
        """Return the digest of all that was added."""
        return None if self._is_empty else self._digest.hexdigest()


class PictureRoom:
    """The room for the pictures that calls hold in memory. Use from one event loop."""

    def __init__(self, most_bytes: int = ROOM_BYTES) -> None:
        self._most_bytes = most_bytes
        self._held_bytes = 0
        self._left = asyncio.Condition()

    @asynccontextmanager
    async def read(self, inputs: Sequence[EmbedInput]) -> AsyncIterator[list[str | Picture]]:
        """Wait for room, and return the inputs with their files read. Raises as `PictureFile.read` does."""
        needed = sum(max(len(one), _LEAST_BYTES) for one in inputs if not isinstance(one, str))
        taken = min(needed, self._most_bytes)
        async with self._left:
            await self._left.wait_for(lambda: self._held_bytes + taken <= self._most_bytes)
            self._held_bytes += taken
        try:
            yield await asyncio.to_thread(_read_files, inputs) if needed else _read_files(inputs)
        finally:
            async with self._left:
                self._held_bytes -= taken
                self._left.notify_all()


def _read_files(inputs: Sequence[EmbedInput]) -> list[str | Picture]:
    return [one.read() if isinstance(one, PictureFile) else one for one in inputs]


def data_uri(picture: Picture) -> str:
    """Return a picture as a data URI."""
    media_type = _MEDIA_TYPES.get(find_format(picture.data) or "", "application/octet-stream")
    return f"data:{media_type};base64,{base64.b64encode(picture.data).decode()}"
