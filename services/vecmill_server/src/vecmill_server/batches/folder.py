"""The folder with the contents of files, locked by one process at a time.

Every function that writes returns after the written bytes are synced to disk.
"""

import errno
import os
import re
import secrets
import sqlite3
from collections.abc import Set
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from vecmill.errors import InvalidConfig
from vecmill.hardware.system_calls import lock_file

_FILE_ID = re.compile("file-[0-9a-f]{24}")


class Folder:
    """A folder that this process locks until `close`."""

    def __init__(self, root: Path) -> None:
        """Lock the folder. Raises `InvalidConfig` if it cannot be written, or another process locks it."""
        self._root = root
        self._files = root / "files"
        try:
            root.mkdir(parents=True, exist_ok=True)
            # Other users of this machine must not read the texts of clients. `root` may belong to another
            # user, for example as a mounted volume, and keeps its mode.
            self._files.mkdir(mode=0o700, exist_ok=True)
            os.close(os.open(self.database, os.O_RDWR | os.O_CREAT, 0o600))
            self._lock = os.open(root / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise InvalidConfig(
                f"The folder {root} cannot be used for batches: {error.strerror}. Name another "
                "folder with --batch-dir."
            ) from error
        try:
            lock_file(self._lock)
        except OSError:
            os.close(self._lock)
            raise InvalidConfig(
                f"Another process uses {root} for its batches. Name another folder with --batch-dir, or "
                "wait for that process to end."
            ) from None

    def close(self) -> None:
        """Release the lock of the folder."""
        os.close(self._lock)

    @property
    def database(self) -> Path:
        """The path of the database."""
        return self._root / "vecmill.sqlite3"

    def path(self, file_id: str) -> Path:
        """Return the path of the content of a file. `file_id` must come from `new_file_id`."""
        return self._files / file_id

    def create(self, file_id: str) -> BinaryIO:
        """Create a content file and return it open for writing. End with `seal` or `remove`."""
        return os.fdopen(os.open(self.path(file_id), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")

    def seal(self, content: BinaryIO) -> None:
        """Sync a complete content file to disk, and close it."""
        content.flush()
        os.fsync(content.fileno())
        content.close()
        self._sync_names()

    def write_at(self, file_id: str, offset: int, data: bytes) -> None:
        """Write `data` at the byte `offset` of a content file, which is created if it does not exist."""
        content = os.open(self.path(file_id), os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            view = memoryview(data)
            while view:
                written = os.pwrite(content, view, offset)
                view, offset = view[written:], offset + written
            os.fdatasync(content)
        finally:
            os.close(content)
        if offset == len(data):  # the write began at 0, so the file may be new
            self._sync_names()

    def cut(self, file_id: str, size: int) -> None:
        """Truncate a content file to `size` bytes; 0 removes the file. Raises `FileNotFoundError`."""
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
        """Return the size of a content file in bytes; 0 if it does not exist."""
        with suppress(FileNotFoundError):
            return self.path(file_id).stat().st_size
        return 0

    def remove(self, file_id: str) -> None:
        """Remove a content file if it exists."""
        self.path(file_id).unlink(missing_ok=True)

    def sweep(self, known: Set[str]) -> None:
        """Remove every content file whose id is not in `known`. Files with foreign names are kept."""
        for path in self._files.iterdir():
            if path.name not in known and _FILE_ID.fullmatch(path.name):
                path.unlink()

    def _sync_names(self) -> None:
        folder = os.open(self._files, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def is_disk_full(error: BaseException) -> bool:
    """Return True if a file or the database could not be written because the disk is full."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def new_file_id() -> str:
    """Return a unique file id that cannot be guessed."""
    return f"file-{secrets.token_hex(12)}"


def new_batch_id() -> str:
    """Return a unique batch id that cannot be guessed."""
    return f"batch_{secrets.token_hex(16)}"
