"""The folder of the embeddings on disk, which several processes use.

    lock                            held while a file is added or removed
    results-1-<generation>.sqlite3  the embeddings; 1 is the version of the format

How it works. There is one file. A damaged file is removed, and the file of the next generation takes its
place. A name is never used twice: SQLite finds the journal of a file by its name, and another process may
still have the removed file open. A process that finds its file gone goes on with the newest one.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vecmill.hardware.system_calls import lock_file

# Incremented when records or tables change. A process reads the files of its own version only, and removes
# those of earlier versions.
VERSION = 1
_NAME = re.compile(r"results-(\d{1,9})-(\d{1,18})\.sqlite3")
_JOURNALS = ("-journal", "-wal", "-shm")


class EmbeddingFolder:
    """A folder with the file of embeddings. Methods raise `OSError`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def newest(self) -> Path | None:
        """Return the newest file, `None` if there is none."""
        found = self._generations()
        return self._path(max(found)) if found else None

    def open(self) -> Path:
        """Return the newest file, which is made if there is none."""
        found = self.newest()
        return self._add(after=None) if found is None else found

    def replace(self, damaged: Path) -> Path:
        """Remove a damaged file, and return the newest one, which may be by another process."""
        return self._add(after=damaged)

    def _add(self, after: Path | None) -> Path:
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._locked():
            generations = self._generations()
            newest = max(generations, default=0)
            if newest == 0 or (after is not None and after == self._path(newest)):
                newest += 1
                flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
                os.close(os.open(self._path(newest), flags, 0o600))
            self._remove_older(newest)
            return self._path(newest)

    def _remove_older(self, newest: int) -> None:
        for path in list(self.root.iterdir()):
            found = _NAME.fullmatch(path.name)
            if found is None or (int(found[1]), int(found[2])) >= (VERSION, newest):
                continue
            for each in (path, *(path.with_name(path.name + suffix) for suffix in _JOURNALS)):
                each.unlink(missing_ok=True)

    def _generations(self) -> list[int]:
        try:
            names = os.listdir(self.root)
        except FileNotFoundError:
            return []
        found = map(_NAME.fullmatch, names)
        return [int(match[2]) for match in found if match is not None and int(match[1]) == VERSION]

    def _path(self, generation: int) -> Path:
        return self.root / f"results-{VERSION}-{generation}.sqlite3"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            lock_file(lock, waits=True)
            yield
        finally:
            os.close(lock)
