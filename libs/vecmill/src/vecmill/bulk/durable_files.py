"""Files that are whole or not there, also after a crash of the machine."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO


def write_durably(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file under a temporary name, flush it to disk and rename it. Raises `OSError`."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    with unfinished.open("wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush the names of the files in a folder to disk. Raises `OSError`."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
