"""Temporary folders: what a killed process leaves is removed, and nothing else."""

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vecmill.engines import owned_folders
from vecmill.engines.owned_folders import LOCK_FILE, OwnedFolder, remove_abandoned

PREFIX = ".unfinished-"
HOLD = """
import sys
from pathlib import Path
from vecmill.engines.owned_folders import OwnedFolder
folder = OwnedFolder.make(Path(sys.argv[1]), sys.argv[2])
(folder.path / "model.weights").write_bytes(b"half")
print(folder.path, flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(parent: Path) -> Iterator[tuple[Path, "subprocess.Popen[str]"]]:
    """A process that holds a folder, which is given, until the end of the block at the latest."""
    command = [sys.executable, "-c", HOLD, str(parent), PREFIX]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Path(process.stdout.readline().strip()), process
        finally:
            process.kill()


def test_a_folder_lives_as_long_as_its_process_whatever_ends_it(tmp_path: Path) -> None:
    with holder(tmp_path) as (folder, process):
        remove_abandoned(tmp_path, PREFIX, unlocked=True)
        assert (folder / "model.weights").exists()
        process.kill()
        process.wait()
        remove_abandoned(tmp_path, PREFIX)
        assert list(tmp_path.iterdir()) == []


def test_the_folders_of_this_process_are_its_own_too(tmp_path: Path) -> None:
    folder = OwnedFolder.make(tmp_path, PREFIX)
    remove_abandoned(tmp_path, PREFIX)
    assert folder.path.is_dir()
    folder.remove()
    folder.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_finished_at_the_same_moment_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, lock = OwnedFolder.make(tmp_path, PREFIX), fcntl.flock
    (folder.path / "model.weights").write_bytes(b"whole")

    def lock_late(*arguments: int) -> None:
        folder.unlock()  # between the opening and the locking of its file
        lock(*arguments)

    monkeypatch.setattr(fcntl, "flock", lock_late)
    remove_abandoned(tmp_path, PREFIX, unlocked=True)
    assert (folder.path / "model.weights").exists()
    assert folder.lock is None


def test_strangers_files_stay(tmp_path: Path) -> None:
    (tmp_path / f"{PREFIX}a-file").write_bytes(b"mine")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / LOCK_FILE).touch()
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "work")
    (tmp_path / f"{PREFIX}unlocked").mkdir()
    before = sorted(tmp_path.rglob("*"))
    remove_abandoned(tmp_path, PREFIX, unlocked=True)
    assert sorted(tmp_path.rglob("*")) == before


def test_the_folders_of_other_users_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    OwnedFolder.make(tmp_path, PREFIX)._close()
    monkeypatch.setattr(os, "geteuid", lambda: 54_321)
    remove_abandoned(tmp_path, PREFIX, unlocked=True)
    assert len(list(tmp_path.iterdir())) == 1


def test_without_locks_only_age_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    folder = OwnedFolder.make(tmp_path, PREFIX)
    assert folder.lock is None
    assert list(folder.path.iterdir()) == []
    remove_abandoned(tmp_path, PREFIX, unlocked=True)
    assert folder.path.is_dir()
    long_ago = time.time() - 2 * owned_folders._ABANDONED_S
    os.utime(folder.path, (long_ago, long_ago))
    remove_abandoned(tmp_path, PREFIX)
    assert folder.path.is_dir()
    remove_abandoned(tmp_path, PREFIX, unlocked=True)
    assert not folder.path.exists()


def test_a_folder_that_does_not_exist_has_nothing_to_remove(tmp_path: Path) -> None:
    remove_abandoned(tmp_path / "none", PREFIX)
