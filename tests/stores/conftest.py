"""A folder in which a store does not wait for a disk at each row."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def fast_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where the system has one. A killed process loses nothing there either."""
    if not MEMORY.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="vecmill-stores-") as folder:
        yield Path(folder)
