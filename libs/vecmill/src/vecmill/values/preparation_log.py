"""The log of the preparation of a model on standard error, for programs that a person watches.

Commands show it. A program with the library may log what it likes: if it has set up no logging, and standard
error is a terminal or a notebook, a start that takes long shows what it does, as bars of downloads do.
"""

import builtins
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from vecmill.values.clock import monotonic
from vecmill.values.download_log import show_downloads

# What prepares a model, and checks it.
_LOGGERS = ("vecmill.engines", "vecmill.quantization", "vecmill.verification")

# The time between two signs of life of a step that says nothing itself.
SIGN_EVERY_S = 10.0

# The time for which nobody wonders what a program does.
PATIENCE_S = 2.0


class _Steps(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes the steps of a preparation, and signs of life from the first step on.

    Steps of the first `patience_s` are held back until then: of a short preparation nothing is shown.
    """

    def __init__(self, sign_every_s: float, patience_s: float) -> None:
        super().__init__(sys.stderr)
        self._sign_every_s = sign_every_s
        self._patience_s = patience_s
        self._held: list[logging.LogRecord] | None = [] if patience_s else None
        self._has_ended = threading.Event()
        self._signs: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a step."""
        if self._held is None or record.levelno >= logging.WARNING:
            super().emit(record)
        else:
            self._held.append(record)
        if self._signs is None:
            self._signs = threading.Thread(target=self._give_signs, name="vecmill-signs", daemon=True)
            self._signs.start()

    def end(self) -> None:
        """End the signs of life."""
        self._has_ended.set()
        if self._signs is not None:
            self._signs.join()

    def _give_signs(self) -> None:
        began = monotonic()
        if self._has_ended.wait(self._patience_s):
            return
        self.acquire()
        try:
            for record in self._held or ():
                super().emit(record)
            self._held = None
        finally:
            self.release()
        while not self._has_ended.wait(self._sign_every_s):
            self.stream.write(f"... still at it after {monotonic() - began:.0f} s\n")
            self.flush()


@contextmanager
def show_preparation(sign_every_s: float = SIGN_EVERY_S, patience_s: float = 0.0) -> Iterator[None]:
    """Show the steps of a preparation on standard error, and every few seconds that it goes on."""
    steps, logs = _Steps(sign_every_s, patience_s), [logging.getLogger(name) for name in _LOGGERS]
    levels = [log.level for log in logs]
    for log in logs:
        log.addHandler(steps)
        log.setLevel(logging.INFO)
    try:
        yield
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.removeHandler(steps)
            log.setLevel(level)
        steps.end()


class _Watchers:
    """The loads that are shown at the same time: what the first one begins to show, the last one ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._showing = ExitStack()

    @contextmanager
    def watch(self) -> Iterator[None]:
        with self._lock:
            if not self._count and _is_watched():
                self._showing.enter_context(show_downloads())
                self._showing.enter_context(show_preparation(patience_s=PATIENCE_S))
            self._count += 1
        try:
            yield
        finally:
            with self._lock:
                self._count -= 1
                if not self._count:
                    self._showing.close()


def _is_watched() -> bool:
    """Return whether a person watches, and the program has not decided itself what is logged."""
    if any(logging.getLogger(name).hasHandlers() for name in _LOGGERS):
        return False
    is_terminal = getattr(sys.stderr, "isatty", lambda: False)
    return is_terminal() or hasattr(builtins, "__IPYTHON__")  # which notebooks have too


show_to_watchers = _Watchers().watch
