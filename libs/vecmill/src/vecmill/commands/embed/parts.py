"""The folder of finished parts beside the output, with one file for each part.

A part is written under a temporary name, flushed to disk and renamed. So even after a power failure, a part
is either complete or missing. The checksum of its zip archive reveals damage; a damaged part counts as
missing. `run.json` holds the settings of the run, and a run with other settings is refused. A lock excludes
other processes.
"""

import errno
import json
import logging
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from vecmill.bulk.chunk_table import count_texts
from vecmill.bulk.durable_files import sync_folder, write_durably
from vecmill.bulk.embedder import Vectors
from vecmill.errors import InvalidConfig, InvalidCorpus
from vecmill.hardware.system_calls import lock_file
from vecmill.values.aliases import IntArray, JsonValue
from vecmill.values.json_text import decode_json

logger = logging.getLogger(__name__)

RunSettings = Mapping[str, JsonValue]

_RUN_FILE = "run.json"
_LOCK_FILE = "lock"
_UNKNOWN = -1
_ASSEMBLED_FILE = "assembled"  # the inode number of the complete output, written before its last rename


@dataclass(frozen=True, slots=True)
class StoredPart:
    """The embeddings of a part, (texts, dim), without the texts at the indices `left_out`.

    `truncated_tokens` has for each of them the number of tokens that were cut off, `None` if that is not
    known. If each chunk has an embedding, `chunks` is their table.
    """

    embeddings: Vectors
    left_out: Sequence[int]
    truncated_tokens: Sequence[int | None]
    chunks: IntArray | None = None

    @property
    def texts(self) -> int:
        """The number of texts with embeddings."""
        return count_texts(self.chunks, len(self.embeddings))


class PartStore:
    """The folder of one run. Use `open_part_store` to open it."""

    def __init__(self, output: Path, folder: Path, dim: int) -> None:
        self.output = output
        self.folder = folder
        self.dim = dim

    def contains(self, number: int, count: int) -> bool:
        """Return whether the part of `count` texts is stored. A damaged file is removed."""
        file = self._file(number)
        if not file.exists():
            return False
        with suppress(InvalidCorpus):
            stored = self.read(number)
            is_whole = stored.chunks is None or len(stored.chunks) == len(stored.embeddings)
            shape = (stored.texts, *stored.embeddings.shape[1:])
            if is_whole and shape == (count - len(stored.left_out), self.dim):
                return True
        logger.warning("%s is damaged: its texts are embedded again.", file)
        file.unlink()
        return False

    def read(self, number: int) -> StoredPart:
        """Read a stored part. Raises `InvalidCorpus` if the part is missing or damaged."""
        file = self._file(number)
        try:
            # Opened here, since numpy does not close a file that is not an archive.
            with file.open("rb") as opened, np.load(opened, allow_pickle=False) as archive:
                dropped = [None if tokens < 0 else tokens for tokens in archive["dropped"].tolist()]
                left_out, chunks = archive["left_out"].tolist(), archive.get("chunks")
                return StoredPart(archive["rows"], left_out, dropped, chunks)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise InvalidCorpus(
                f"{file} is missing or damaged. Run the same command again to compute it again."
            ) from error

    def write(
        self,
        number: int,
        embeddings: Vectors,
        left_out: Sequence[int] = (),
        truncated_tokens: Sequence[int | None] = (),
        chunks: IntArray | None = None,
    ) -> None:
        """Store the embeddings of a part. Raises `InvalidConfig` if the file cannot be written."""
        tokens = truncated_tokens or [None] * len(embeddings)
        dropped = np.array([_UNKNOWN if each is None else each for each in tokens], np.int64)
        indices = np.array(left_out, np.int64)
        more: dict[str, Any] = {} if chunks is None else {"chunks": chunks}
        write_whole(
            self._file(number),
            lambda file: np.savez(file, rows=embeddings, left_out=indices, dropped=dropped, **more),
            self.output,
        )

    def finish(self, write: Callable[[Path], object]) -> None:
        """Call `write` to write the output, then rename the output and remove the folder.

        Raises `InvalidConfig`.
        """
        unfinished = self.folder / f"unfinished{self.output.suffix}"
        with _report_write_errors(self.output, self.output):
            write(unfinished)
            with unfinished.open("rb") as file:
                os.fsync(file.fileno())
        number = str(unfinished.stat().st_ino)
        write_whole(self.folder / _ASSEMBLED_FILE, lambda file: file.write(number.encode()), self.output)
        with _report_write_errors(self.output):
            unfinished.replace(self.output)
            sync_folder(self.output.parent)
        self.remove()

    @property
    def is_finished(self) -> bool:
        """Whether the output exists and was assembled from these parts."""
        return _is_assembled(self.output)

    def remove(self) -> None:
        """Remove the folder: first the parts, then the settings of the run.

        If it is a link, the files behind it are removed, and the link and its folder stay.
        """
        for file in self.folder.glob("part-*"):
            file.unlink(missing_ok=True)
        if self.folder.is_symlink():
            for file in self.folder.iterdir():
                with suppress(OSError):
                    file.unlink()
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _file(self, number: int) -> Path:
        return self.folder / f"part-{number:07}.npz"


def folder_of(output: Path) -> Path:
    """Return the folder of the parts of an output."""
    return output.with_name(f"{output.name}.parts")


def has_finished_parts(output: Path) -> bool:
    """Return whether an earlier run, or an interrupted one, has stored parts of an output."""
    return any(folder_of(output).glob("part-*.npz"))


def refuse_existing(output: Path, *, updates: bool = False) -> None:
    """Raise `InvalidConfig` for an output whose folder is missing or cannot be written.

    Unless `updates`, also for an output that exists.
    """
    if not output.parent.is_dir():
        raise InvalidConfig(f"There is no folder {output.parent}.")
    if not os.access(output.parent, os.W_OK):
        raise InvalidConfig(
            f"The folder {output.parent.absolute()} cannot be written: {os.strerror(errno.EACCES)}. Choose "
            "another output."
        )
    if output.exists() and not updates and not _is_assembled(output):
        raise InvalidConfig(f"{output} exists already. Choose another output, or remove this file.")


@contextmanager
def open_part_store(output: Path, run: RunSettings, dim: int) -> Iterator[PartStore]:
    """Open the folder of parts of an earlier run with the same settings, or a new folder.

    Raises `InvalidConfig` if the folder belongs to a run with other settings, or another process uses it.
    """
    folder = folder_of(output)
    with _report_write_errors(folder):
        folder.mkdir(exist_ok=True)
        lock = (folder / _LOCK_FILE).open("wb")
    with lock:
        try:
            lock_file(lock.fileno())
        except BlockingIOError as error:
            raise InvalidConfig(f"Another process is writing {output} now.") from error
        except OSError as error:
            raise InvalidConfig(f"{lock.name} cannot be locked: {error.strerror}.") from error
        _bind(folder, output, run)
        yield PartStore(output, folder, dim)


def write_whole(path: Path, write: Callable[[IO[bytes]], object], output: Path | None = None) -> None:
    """Write a file under a temporary name, flush it to disk and rename it.

    Raises `InvalidConfig` if the file cannot be written. If the disk is full and `output` has finished parts,
    the message says so.
    """
    with _report_write_errors(path, output):
        write_durably(path, write)


def _is_assembled(output: Path) -> bool:
    """Return whether the output was assembled from the parts beside it."""
    try:
        number = (folder_of(output) / _ASSEMBLED_FILE).read_text("ascii")
        return number == str(output.stat().st_ino)
    except FileNotFoundError:
        return False


def _bind(folder: Path, output: Path, run: RunSettings) -> None:
    """Write the settings of the run, or raise `InvalidConfig` if the folder has other settings."""
    file = folder / _RUN_FILE
    if not file.exists():
        # Otherwise foreign files would count as parts and be removed at the end.
        if any(path.name not in (_LOCK_FILE, f"{_RUN_FILE}.unfinished") for path in folder.iterdir()):
            raise InvalidConfig(
                f"{folder}, the folder for the parts of {output}, contains other files. Remove or rename it."
            )
        write_whole(file, lambda opened: opened.write(json.dumps(run, indent=2).encode()))
        return
    try:
        known = decode_json(file.read_bytes())
        others = [name for name in {**run, **known} if known.get(name) != run.get(name)]
    except (ValueError, AttributeError) as error:
        raise InvalidConfig(f"{file} is damaged. Remove {folder} to start {output} again.") from error
    if others:
        raise InvalidConfig(
            f"{folder} has parts of {output} that were made with another {' and another '.join(others)}. To "
            f"continue, use the settings in {_RUN_FILE} of this folder. To start again, remove the folder."
        )


@contextmanager
def _report_write_errors(path: Path, output: Path | None = None) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror}."
        if error.errno == errno.EFBIG:
            message += " Raise the limit of this process for the size of a file (ulimit -f)."
        if error.errno in _FULL and output is not None and has_finished_parts(output):
            message += (
                f" The finished parts are kept in {folder_of(output)}. Make space, and run the same command "
                "again: it continues with them."
            )
        raise InvalidConfig(message) from error


_FULL = (errno.ENOSPC, errno.EDQUOT)
