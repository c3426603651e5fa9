"""Locks that keep two writers out of a collection in a folder, for stores whose clients have none."""

import os
from pathlib import Path
from typing import BinaryIO

from vecmill.errors import InvalidConfig
from vecmill.hardware.system_calls import lock_file


def lock_collection(path: Path, shown: str) -> BinaryIO:
    """Lock the file `path` until the returned file is closed.

    Raises `InvalidConfig` if another process has the lock.

    A store that removes the file does so while it holds the lock.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    except OSError as error:
        raise InvalidConfig(f"{path} cannot be written: {error.strerror}.") from error
    try:
        lock_file(file.fileno())
    except BlockingIOError as error:
        file.close()
        raise InvalidConfig(f"Another process is writing {shown} now.") from error
    except OSError as error:
        file.close()
        raise InvalidConfig(f"{path} cannot be locked: {error.strerror}.") from error
    if os.fstat(file.fileno()).st_nlink == 0:
        file.close()  # a run that ended meanwhile has removed it
        return lock_collection(path, shown)
    return file
