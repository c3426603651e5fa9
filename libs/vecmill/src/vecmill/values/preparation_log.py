"""The log of the preparation of a model on standard error, for programs that a person watches."""

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from vecmill.values.clock import monotonic

# What prepares a model, and checks it.
_LOGGERS = ("vecmill.engines", "vecmill.quantization", "vecmill.verification")

# The time between two signs of life of a step that says nothing itself.
SIGN_EVERY_S = 10.0


class _Steps(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes the steps of a preparation, and signs of life from the first step on."""

    def __init__(self, sign_every_s: float) -> None:
        super().__init__(sys.stderr)
        self._sign_every_s = sign_every_s
        self._has_ended = threading.Event()
        self._signs: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a step."""
        super().emit(record)
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
        while not self._has_ended.wait(self._sign_every_s):
            print(f"... still at it after {monotonic() - began:.0f} s", file=self.stream, flush=True)


@contextmanager
def show_preparation(sign_every_s: float = SIGN_EVERY_S) -> Iterator[None]:
    """Show the steps of a preparation on standard error, and every few seconds that it goes on."""
    steps, logs = _Steps(sign_every_s), [logging.getLogger(name) for name in _LOGGERS]
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
