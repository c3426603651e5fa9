"""Temporary folders that belong to one process, and the removal of those whose process has ended.

    .unfinished-abc123/
        owner.lock       locked (`flock`) as long as the process that made the folder lives
        ...

The operating system releases the lock however the process ends, so a folder whose lock is free was left by a
killed process. A folder without a lock file is removed only if its name begins with a prefix that nobody else
uses and it is an hour old: another process may be about to lock it. Folders of other users are never removed.
"""

import contextlib
import logging
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vecmill.hardware.system_calls import lock_file

LOCK_FILE = "owner.lock"

_ABANDONED_S = 3600.0  # no process takes an hour from making a folder to locking it

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class OwnedFolder:
    """A temporary folder of this process. `lock` is the open lock file, `None` if there is no lock."""

    path: Path
    lock: int | None

    @classmethod
    def make(cls, parent: Path, prefix: str) -> Self:
        """Make a folder in `parent` whose name begins with `prefix`, and lock it. Raises `OSError`."""
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        try:
            return cls(path, _lock_new(path))
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise

    def unlock(self) -> None:
        """Remove the lock; the folder and its other files stay."""
        with contextlib.suppress(FileNotFoundError):
            (self.path / LOCK_FILE).unlink()
        self._close()

    def remove(self) -> None:
        """Remove the folder if it still has its name. May be called twice."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._close()

    def _close(self) -> None:
        lock, self.lock = self.lock, None
        if lock is not None:
            os.close(lock)


def remove_abandoned(parent: Path, prefix: str, *, unlocked: bool = False) -> None:
    """Remove the folders in `parent` whose name begins with `prefix` and whose process has ended.

    With `unlocked`, folders of that name without a lock file are removed too, when they are an hour old.
    """
    try:
        found = [entry for entry in os.scandir(parent) if entry.name.startswith(prefix)]
    except OSError:
        return
    long_ago = time.time() - _ABANDONED_S
    for entry in found:
        with contextlib.suppress(OSError):
            status = entry.stat(follow_symlinks=False)
            is_own = entry.is_dir(follow_symlinks=False) and status.st_uid == os.geteuid()
            if is_own and _is_abandoned(Path(entry.path), unlocked and status.st_mtime < long_ago):
                shutil.rmtree(entry.path, ignore_errors=True)
                logger.info("Removed %s, which a process that ended early had left.", entry.path)


def _lock_new(folder: Path) -> int | None:
    """Put a locked file into `folder`. It gets its name when it is locked, so that nobody finds it free."""
    file, name = tempfile.mkstemp(dir=folder)
    try:
        lock_file(file)
    except OSError:  # some network file systems have no locks
        os.close(file)
        Path(name).unlink()
        return None
    Path(name).rename(folder / LOCK_FILE)
    return file


def _is_abandoned(folder: Path, if_unlocked: bool) -> bool:
    """Return whether nobody holds the lock of `folder`; `if_unlocked` if there is no lock file."""
    try:
        lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return if_unlocked
    try:
        lock_file(lock)
        # A process that keeps its folder removes the lock file before it gives up the lock. This process may
        # have opened the file before that.
        return os.fstat(lock).st_nlink > 0
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
