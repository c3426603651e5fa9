"""Digests of files are kept on disk, and a file that was changed in any way is read again."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from vecmill.models.digests import FOLDER, recall_digest
from vecmill.models.fingerprint import hash_file


class Reader:
    """Counts how often a file is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reads = 0

    def __call__(self) -> str:
        self.reads += 1
        return self.path.read_text()


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    path = tmp_path / "weights"
    path.write_text("published")
    return Reader(path)


def recall(reader: Reader, tmp_path: Path, *, later_s: float = 3600.0) -> str:
    """Return the digest of the file, `later_s` after the test began."""
    return recall_digest(reader.path, tmp_path / "cache", reader, clock=lambda: time.time() + later_s)


def test_an_unchanged_file_is_read_once(reader: Reader, tmp_path: Path) -> None:
    for _ in range(3):
        assert recall(reader, tmp_path) == "published"
    assert reader.reads == 1


def in_place(path: Path) -> None:
    found = path.stat()
    path.write_text("forgeries")  # as long as before
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def by_another_file(path: Path) -> None:
    other = path.with_name("other")
    other.write_text("forgeries")
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    other.replace(path)


@pytest.mark.parametrize("change", [in_place, by_another_file])
def test_a_changed_file_is_read_again_whatever_its_size_and_time(
    reader: Reader, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    recall(reader, tmp_path)
    change(reader.path)
    assert recall(reader, tmp_path) == "forgeries"


def test_the_digest_of_a_file_that_was_just_changed_is_not_kept(reader: Reader, tmp_path: Path) -> None:
    for _ in range(2):
        recall(reader, tmp_path, later_s=1.0)
    assert reader.reads == 2


@pytest.mark.parametrize("content", [b"", b"null", b"[]", b'{"sha256": 1}', b"[" * 100_000, b"\xff"])
def test_a_damaged_digest_is_written_again(reader: Reader, tmp_path: Path, content: bytes) -> None:
    recall(reader, tmp_path)
    (kept,) = (tmp_path / "cache" / FOLDER).iterdir()
    kept.write_bytes(content)
    assert [recall(reader, tmp_path) for _ in range(2)] == ["published"] * 2
    assert reader.reads == 2


def test_a_folder_that_cannot_be_written_is_no_error(reader: Reader, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert recall(reader, tmp_path) == "published"


def test_the_kept_digest_is_that_of_the_content(reader: Reader, tmp_path: Path) -> None:
    read = hash_file(reader.path)
    recall_digest(reader.path, tmp_path / "cache", lambda: read, clock=lambda: time.time() + 3600.0)
    assert list((tmp_path / "cache" / FOLDER).iterdir())
    assert hash_file(reader.path, tmp_path / "cache") == read
