"""What a runtime has opened from prepared files, and what happens if these files are changed meanwhile.

Runtimes map the files (`engines.prepared`) instead of reading them, so that all processes that serve a model
share its weights in memory. If another program overwrites or truncates a mapped file in place, as `cp` does,
a call computes with the new bytes. So the files stay open here, and their size and time of modification are
compared before and after each call. After a change, the model is prepared and opened again, and the call
repeated. A file that is removed or replaced by renaming is unharmed: a mapping keeps the old file.

A file that is truncated during a call ends the process with SIGBUS, which no code can prevent.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from vecmill.engines.prepared import PreparedModel
from vecmill.errors import DeviceLost, SetupError
from vecmill.hardware.system_calls import lock_for_reading

logger = logging.getLogger(__name__)

S = TypeVar("S")
R = TypeVar("R")


class WatchedFiles:
    """Files whose content may be changed in place. They are open until this object is no longer used."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Open the files of `paths`. Raises `OSError`."""
        self._states: dict[int, tuple[int, int]] = {}
        for path in paths:
            file = os.open(path, os.O_RDONLY)
            with suppress(OSError):  # some network file systems have no locks
                lock_for_reading(file)  # so that `vecmill cache prune` leaves it
            self._states[file] = _state_of(file)

    def have_changed(self) -> bool:
        """Return whether a file was written to or truncated since it was opened."""
        return any(_state_of(file) != state for file, state in self._states.items())

    def __del__(self) -> None:
        for file in self._states:
            os.close(file)


def _state_of(file: int) -> tuple[int, int]:
    found = os.fstat(file)
    return found.st_size, found.st_mtime_ns


@dataclass(frozen=True, slots=True)
class _Opened(Generic[S]):
    sessions: S
    files: WatchedFiles


class MappedModel(Generic[S]):
    """The sessions of an engine, and the prepared model whose files they map.

    `open_sessions` opens the files. It is called again after `renew` and after a change of the files, while
    calls that have begun keep their sessions.
    """

    def __init__(self, prepared: PreparedModel, open_sessions: Callable[[], S]) -> None:
        self.prepared = prepared
        self._open_sessions = open_sessions
        self._lock = threading.Lock()
        self._opened = self._open()

    @property
    def sessions(self) -> S:
        """The sessions for the calls that begin now."""
        return self._opened.sessions

    def run(self, compute: Callable[[S], R]) -> R:
        """Return the result of `compute`, which is called with the sessions, from unchanged files.

        Raises any error of `compute`, and `DeviceLost` if the files were changed and the model cannot be
        prepared and opened again.
        """
        while True:
            opened = self._opened
            if not opened.files.have_changed():
                try:
                    result = compute(opened.sessions)
                except Exception:
                    if not opened.files.have_changed():
                        raise
                else:
                    if not opened.files.have_changed():
                        return result
            self._open_again(opened)

    def renew(self) -> None:
        """Open new sessions. Raises the same errors as the preparation and `open_sessions`."""
        with self._lock:
            self._renew()

    def _open_again(self, changed: "_Opened[S]") -> None:
        with self._lock:
            if self._opened is not changed:  # another thread has done it
                return
            folder = self.prepared.mapped_folder
            logger.warning(
                "The files in %s were changed while they were served. They are opened again.", folder
            )
            try:
                self._renew()
            except SetupError as error:
                raise DeviceLost(
                    f"The files in {folder} were changed while they were served, and cannot be opened again."
                ) from error

    def _renew(self) -> None:
        self.prepared.restore(is_changed=self._opened.files.have_changed())
        self._opened = self._open()

    def _open(self) -> "_Opened[S]":
        # In this order, so that no change is missed.
        files = WatchedFiles(self.prepared.list_mapped_files())
        return _Opened(self._open_sessions(), files)
