"""The folder that holds the contents of files: one process at a time, and nothing half written under a name.

Every function that writes returns when the disk has what it wrote.
"""

import fcntl
import os
import re
import secrets
from collections.abc import Set
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from vecmill.errors import InvalidConfig

_FILE_ID = re.compile("file-[0-9a-f]{24}")


class Folder:
    """A folder that this process has to itself until `close`."""

    def __init__(self, root: Path) -> None:
        """Raises `InvalidConfig` if the folder cannot be made or written to, or another process has it."""
        self._root = root
        self._files = root / "files"
        try:
            root.mkdir(parents=True, exist_ok=True)
            # What clients send is nobody else's business on this machine. The folder itself may be another's,
            # as a mounted volume is, and keeps the mode that it has.
            self._files.mkdir(mode=0o700, exist_ok=True)
            os.close(os.open(self.database, os.O_RDWR | os.O_CREAT, 0o600))
            self._lock = os.open(root / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise InvalidConfig(
                f"The folder {root} cannot be used for batches: {error.strerror}. Name another with "
                "--batch-dir."
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise InvalidConfig(
                f"Another process keeps its batches in {root}. Name another folder with --batch-dir, or "
                "wait for that process to end."
            ) from None

    def close(self) -> None:
        """Let other processes have the folder."""
        os.close(self._lock)

    @property
    def database(self) -> Path:
        """Where the database belongs."""
        return self._root / "vecmill.sqlite3"

    def path(self, file_id: str) -> Path:
        """Where the content of a file is. `file_id` must be one of ours."""
        return self._files / file_id

    def create(self, file_id: str) -> BinaryIO:
        """A new content to write, and then to `seal` or to `remove`."""
        return os.fdopen(os.open(self.path(file_id), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")

    def seal(self, content: BinaryIO) -> None:
        """Close a content that is whole."""
        content.flush()
        os.fsync(content.fileno())
        content.close()
        self._sync_names()

    def write_at(self, file_id: str, offset: int, data: bytes) -> None:
        """Put `data` at `offset` of a content, which is made if there is none."""
        content = os.open(self.path(file_id), os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            view = memoryview(data)
            while view:
                written = os.pwrite(content, view, offset)
                view, offset = view[written:], offset + written
            os.fdatasync(content)
        finally:
            os.close(content)
        if offset == len(data):  # it began at 0: the name may be new
            self._sync_names()

    def cut(self, file_id: str, size: int) -> None:
        """Cut a content to its first `size` bytes; one of none is removed. Raises `FileNotFoundError`."""
        if size == 0:
            self.remove(file_id)
            return
        content = os.open(self.path(file_id), os.O_WRONLY)
        try:
            os.ftruncate(content, size)
            os.fsync(content)
        finally:
            os.close(content)

    def size(self, file_id: str) -> int:
        """The bytes of a content; 0 if there is none."""
        with suppress(FileNotFoundError):
            return self.path(file_id).stat().st_size
        return 0

    def remove(self, file_id: str) -> None:
        """Remove a content, if there is one."""
        self.path(file_id).unlink(missing_ok=True)

    def sweep(self, known: Set[str]) -> None:
        """Remove every content that is not of a `known` file. What is not ours stays."""
        for path in self._files.iterdir():
            if path.name not in known and _FILE_ID.fullmatch(path.name):
                path.unlink()

    def _sync_names(self) -> None:
        folder = os.open(self._files, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def new_file_id() -> str:
    """An id that no other file has, or can be guessed to have."""
    return f"file-{secrets.token_hex(12)}"


def new_batch_id() -> str:
    """The same for batches."""
    return f"batch_{secrets.token_hex(16)}"
