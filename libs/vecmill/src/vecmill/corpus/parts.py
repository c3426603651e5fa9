"""The parts that are done, each in a file of its own in a folder beside the output.

How it works. A part is written under another name, brought to the disk and then given its own: it is there
whole or not at all, whenever the process or the machine stops. A zip archive around the array has a checksum,
so that damage is noticed; a damaged part counts as missing. `run.json` says what the parts belong to; a run
of anything else is refused. A lock keeps a second process out.
"""

import fcntl
import json
import logging
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from vecmill.corpus.embedder import Rows
from vecmill.errors import InvalidConfig, InvalidCorpus
from vecmill.types import JsonValue

logger = logging.getLogger(__name__)

Run = Mapping[str, JsonValue]

_RUN_FILE = "run.json"
_LOCK_FILE = "lock"
_ASSEMBLED_FILE = "assembled"  # the number of the file that the output is made of, before it is


@dataclass(frozen=True, slots=True)
class Kept:
    """The rows of a part, (texts, dim), but for the texts at the places `left_out`."""

    rows: Rows
    left_out: Sequence[int]


class Parts:
    """The folder of one run. Make it by `open_parts`."""

    def __init__(self, output: Path, folder: Path, dim: int) -> None:
        self.output = output
        self.folder = folder
        self.dim = dim

    def holds(self, number: int, count: int) -> bool:
        """Whether the part is there with `count` rows. A damaged one is removed."""
        file = self._file(number)
        if not file.exists():
            return False
        with suppress(InvalidCorpus):
            kept = self.read(number)
            if kept.rows.shape == (count - len(kept.left_out), self.dim):
                return True
        logger.warning("%s is damaged: its texts are embedded again.", file)
        file.unlink()
        return False

    def read(self, number: int) -> Kept:
        """What is kept of a part. Raises `InvalidCorpus` if it is missing or damaged."""
        file = self._file(number)
        try:
            # Opened here: numpy leaves a file open that is no archive.
            with file.open("rb") as opened, np.load(opened, allow_pickle=False) as archive:
                return Kept(archive["rows"], archive["left_out"].tolist())
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise InvalidCorpus(
                f"{file} is missing or damaged. Run the same command again, which computes it anew."
            ) from error

    def write(self, number: int, rows: Rows, left_out: Sequence[int] = ()) -> None:
        """Keep the rows of a part for good. Raises `InvalidConfig` where it cannot be written."""
        places = np.array(left_out, np.int64)
        write_whole(self._file(number), lambda file: np.savez(file, rows=rows, left_out=places))

    def finish(self, write: Callable[[Path], object]) -> None:
        """Have the output written, give it its name and remove the folder. Raises `InvalidConfig`."""
        unfinished = self.folder / f"unfinished{self.output.suffix}"
        with _explained(self.output):
            write(unfinished)
            with unfinished.open("rb") as file:
                os.fsync(file.fileno())
        number = str(unfinished.stat().st_ino)
        write_whole(self.folder / _ASSEMBLED_FILE, lambda file: file.write(number.encode()))
        with _explained(self.output):
            unfinished.replace(self.output)
            _sync_folder(self.output.parent)
        self.remove()

    @property
    def is_finished(self) -> bool:
        """Whether the output is there, and what these parts were made for."""
        return _is_assembled(self.output)

    def remove(self) -> None:
        """Remove the folder: what says whose the parts are goes after them."""
        for file in self.folder.glob("part-*"):
            file.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _file(self, number: int) -> Path:
        return self.folder / f"part-{number:07}.npz"


def folder_of(output: Path) -> Path:
    """Where the parts of an output are kept."""
    return output.with_name(f"{output.name}.parts")


def refuse_existing(output: Path) -> None:
    """Raise `InvalidConfig` for an output that is there already, or has no place to be."""
    if not output.parent.is_dir():
        raise InvalidConfig(f"There is no folder {output.parent}.")
    if output.exists() and not _is_assembled(output):
        raise InvalidConfig(f"{output} exists already. Name another output, or remove it.")


@contextmanager
def open_parts(output: Path, run: Run, dim: int) -> Iterator[Parts]:
    """The parts of a run that was begun, or the folder of a new one.

    Raises `InvalidConfig` if what is there belongs to another run, or another process has it open.
    """
    folder = folder_of(output)
    with _explained(folder):
        folder.mkdir(exist_ok=True)
        lock = (folder / _LOCK_FILE).open("wb")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InvalidConfig(f"Another process is writing {output} now.") from error
        except OSError as error:
            raise InvalidConfig(f"{lock.name} cannot be locked: {error.strerror}.") from error
        _bind(folder, output, run)
        yield Parts(output, folder, dim)


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Have a file written and brought to the disk, then give it its name.

    Raises `InvalidConfig` where it cannot be written.
    """
    unfinished = path.with_name(f"{path.name}.unfinished")
    with _explained(path):
        with unfinished.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        _sync_folder(path.parent)


def _is_assembled(output: Path) -> bool:
    """Whether the output is the file that the parts beside it were put together to."""
    try:
        number = (folder_of(output) / _ASSEMBLED_FILE).read_text("ascii")
        return number == str(output.stat().st_ino)
    except FileNotFoundError:
        return False


def _bind(folder: Path, output: Path, run: Run) -> None:
    """Write down what the parts belong to, or raise `InvalidConfig` if it is something else."""
    file = folder / _RUN_FILE
    if not file.exists():
        # Parts of something unknown would be taken for ours, and files of somebody else removed at the end.
        if any(path.name not in (_LOCK_FILE, f"{_RUN_FILE}.unfinished") for path in folder.iterdir()):
            raise InvalidConfig(
                f"{folder} is where the parts of {output} go, but holds something else. Remove or rename it."
            )
        write_whole(file, lambda opened: opened.write(json.dumps(run, indent=2).encode()))
        return
    try:
        known = json.loads(file.read_bytes())
        others = [name for name in {**run, **known} if known.get(name) != run.get(name)]
    except (ValueError, AttributeError) as error:
        raise InvalidConfig(f"{file} is damaged. Remove {folder} to begin {output} anew.") from error
    if others:
        raise InvalidConfig(
            f"{folder} holds parts of {output} that were made with another {' and another '.join(others)}. "
            f"Give what was given then (see {_RUN_FILE} in it) to go on with them, or remove that folder to "
            "begin anew."
        )


def _sync_folder(folder: Path) -> None:
    """Bring the names of files to the disk."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidConfig(f"{path} cannot be written: {error.strerror}.") from error
